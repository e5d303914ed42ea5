package node

import (
	"fmt"
	"os"
	"strings"
)

// A mountPoint is a mount in this namespace. No other mount has the same id at the same time.
type mountPoint struct{ id, point string }

// mounts returns the mounts of this namespace. A mount comes after the one that contains its mount point.
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

// unescape reverts the kernel's escaping of blanks and similar characters in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountsNow returns the ids of the current mounts.
func mountsNow() (map[string]bool, error) {
	all, err := mounts()
	ids := make(map[string]bool, len(all))
	for _, m := range all {
		ids[m.id] = true
	}
	return ids, err
}
