package evidence

import (
	"fmt"
	"path"
	"strings"
)

// mostNamed is the number of files that a line of [Set.Left] names.
const mostNamed = 20

// Left returns a line for each reason why input was not used, with the files that it applies to.
func (s *Set) Left() (lines []string) {
	byWhy := map[string][]Source{}
	var reasons []string
	for _, u := range s.Unused {
		if byWhy[u.Why] == nil {
			reasons = append(reasons, u.Why)
		}
		byWhy[u.Why] = append(byWhy[u.Why], u.Source)
	}
	for _, why := range reasons {
		from := byWhy[why]
		if len(from) == 1 {
			lines = append(lines, fmt.Sprintf("%s is not used: %s", from[0], why))
			continue
		}
		var names []string
		for _, f := range from[:min(len(from), mostNamed)] {
			names = append(names, path.Base(f.String()))
		}
		if more := len(from) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		lines = append(lines, fmt.Sprintf("%d files are not used (%s): %s", len(from), strings.Join(names, ", "), why))
	}
	return lines
}

// Events returns the events of all pods, workloads, ConfigMaps and Secrets.
func (s *Set) Events() (out []Event) {
	for _, p := range s.Pods {
		out = append(out, p.Events...)
	}
	for _, w := range s.Creators {
		out = append(out, w.Events...)
	}
	for _, c := range s.Configs {
		out = append(out, c.Events...)
	}
	return out
}
