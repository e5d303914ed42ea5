package history

import (
	"fmt"
	"slices"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// moments is the largest number of moments in a timeline, so that the report fits a screen.
const moments = 12

// Timeline returns the starts and ends of containers, the moments when the proxy became ready, and the failed calls
// among the quotes, in the order of time. If there are too many, the moments of containers other than the
// proxy and the applications are left out first, then the earliest moments.
func Timeline(s *facts.Pod, failed calls.Calls, quotes []evidence.Quote) (out []result.Moment) {
	for _, c := range s.Containers {
		for _, r := range c.Runs {
			again := ""
			if r.Number > 0 {
				again = fmt.Sprintf(" again (%d)", r.Number)
			}
			if r.Started.Known() {
				text := "starts" + again
				if r.Running {
					text += ", and runs since"
				}
				out = append(out, result.Moment{At: r.Started, Container: c.Name, Text: text})
			}
			if r.Finished.Known() {
				out = append(out, result.Moment{At: r.Finished, Container: c.Name, Text: "ends: " + facts.ExitText(r)})
			}
		}
	}
	for _, v := range s.Serving {
		if v.Ready.At.Known() {
			out = append(out, result.Moment{At: v.Ready.At, Container: s.Proxy.Name, Text: "is ready"})
		}
	}
	for _, q := range quotes {
		i := slices.IndexFunc(failed, func(y calls.Call) bool { return y.Quote == q })
		if i >= 0 && q.At.Known() && q.At.Clock == evidence.NodeClock {
			out = append(out, result.Moment{At: q.At, Container: failed[i].Container, Text: failed[i].String()})
		}
	}
	slices.SortStableFunc(out, func(a, b result.Moment) int {
		return a.At.At.Compare(b.At.At) // moments of the same instant keep the order in which they were added
	})
	out = slices.Compact(out)
	for len(out) > moments { // moments of init containers are the least important
		i := slices.IndexFunc(out, func(m result.Moment) bool { return !tells(s, m) })
		out = slices.Delete(out, max(i, 0), max(i, 0)+1)
	}
	return out
}

// tells reports whether a moment concerns the proxy or an application.
func tells(s *facts.Pod, m result.Moment) bool {
	return s.Proxy != nil && m.Container == s.Proxy.Name || slices.ContainsFunc(s.Apps, func(c *evidence.Container) bool { return c.Name == m.Container })
}
