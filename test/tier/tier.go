// Package tier says how much a run of the tests is to cover. Most runs take a sample of the
// large tables and of what is started again and again; the nightly run takes all of it.
package tier

import (
	"hash/fnv"
	"os"
)

// Nightly reports whether this run is to cover everything: OUTRIDER_NIGHTLY is 1.
func Nightly() bool { return os.Getenv("OUTRIDER_NIGHTLY") == "1" }

// Sample reports whether a case is part of this run: about one name in n, chosen by its
// hash, so that a case added or moved changes nothing for the others. In the nightly run
// every case is.
func Sample(name string, n uint32) bool { return Nightly() || hash(name)%n == 0 }

// OneOfEach returns the cases of this run: of each kind the one whose name has the lowest
// hash, and in the nightly run all.
func OneOfEach(names []string, kind func(name string) string) map[string]bool {
	chosen, lowest := map[string]bool{}, map[string]string{}
	for _, name := range names {
		if l, ok := lowest[kind(name)]; !ok || hash(name) < hash(l) {
			lowest[kind(name)] = name
		}
		chosen[name] = Nightly()
	}
	for _, name := range lowest { // any order: names differ
		chosen[name] = true
	}
	return chosen
}

func hash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// Times returns how often something is repeated: few times, or in the nightly run all.
func Times(few, all int) int {
	if Nightly() {
		return all
	}
	return few
}
