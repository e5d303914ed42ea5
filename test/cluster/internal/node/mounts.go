package node

import (
	"fmt"
	"os"
	"strings"
)

// A mountPoint is one of this namespace. Its id is that of no other at the same time.
type mountPoint struct{ id, point string }

// mounts returns those of this namespace, each after the one that it is mounted on.
func mounts() (all []mountPoint, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text))
}

func parseMounts(mountinfo string) (all []mountPoint, err error) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("mountinfo: cannot read %q", line)
		}
		all = append(all, mountPoint{id: fields[0], point: unescape.Replace(fields[4])})
	}
	return all, nil
}

// unescape undoes what the kernel does to a path that would break a line into more fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountsNow returns the ids of what is mounted.
func mountsNow() (map[string]bool, error) {
	all, err := mounts()
	ids := make(map[string]bool, len(all))
	for _, m := range all {
		ids[m.id] = true
	}
	return ids, err
}
