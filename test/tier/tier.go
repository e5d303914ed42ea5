// Package tier decides how much a test run covers. Most runs take a sample of large tables and few repetitions
// of restarts; the nightly run takes all.
package tier

import (
	"hash/fnv"
	"os"
)

// Nightly reports whether this run covers everything: OUTRIDER_NIGHTLY is 1.
func Nightly() bool { return os.Getenv("OUTRIDER_NIGHTLY") == "1" }

// Sample reports whether a case is part of this run: about one name in n, chosen by its hash, so
// that adding or moving a case does not affect the others. The nightly run includes every case.
func Sample(name string, n uint32) bool { return Nightly() || hash(name)%n == 0 }

// OneOfEach returns the cases of this run: for each kind, the case whose name has the lowest hash. The
// nightly run includes every case.
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

// Times returns the number of repetitions: few in most runs, and all in the nightly run.
func Times(few, all int) int {
	if Nightly() {
		return all
	}
	return few
}
