package history

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
)

// A Moment is a line of the timeline.
type Moment struct {
	At        evidence.Time `json:"at"`
	Container string        `json:"container,omitempty"`
	Text      string        `json:"text"`
}

// moments is the largest number of moments in a timeline, so that the report fits a screen.
const moments = 12

// Timeline returns the starts and ends of containers, the moments when the proxy became ready, and the failed calls
// among the quotes, in the order of time. If there are too many, the moments of containers other than the
// proxy and the applications are left out first, then the earliest moments.
func Timeline(s *facts.Pod, failed calls.Calls, quotes []evidence.Quote) (out []Moment) {
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
				out = append(out, Moment{r.Started, c.Name, text})
			}
			if r.Finished.Known() {
				out = append(out, Moment{r.Finished, c.Name, "ends: " + facts.ExitText(r)})
			}
		}
	}
	for _, v := range s.Serving {
		if v.Ready.At.Known() {
			out = append(out, Moment{v.Ready.At, s.Proxy.Name, "is ready"})
		}
	}
	for _, q := range quotes {
		i := slices.IndexFunc(failed, func(y calls.Call) bool { return y.Quote == q })
		if i >= 0 && q.At.Known() && q.At.Clock == evidence.NodeClock {
			out = append(out, Moment{q.At, failed[i].Container, failed[i].String()})
		}
	}
	slices.SortStableFunc(out, func(a, b Moment) int {
		return a.At.At.Compare(b.At.At) // moments of the same instant keep the order in which they were added
	})
	out = slices.Compact(out)
	for len(out) > moments { // moments of init containers are the least important
		i := slices.IndexFunc(out, func(m Moment) bool { return !tells(s, m) })
		out = slices.Delete(out, max(i, 0), max(i, 0)+1)
	}
	return out
}

// tells reports whether a moment concerns the proxy or an application.
func tells(s *facts.Pod, m Moment) bool {
	return s.Proxy != nil && m.Container == s.Proxy.Name || slices.ContainsFunc(s.Apps, func(c *evidence.Container) bool { return c.Name == m.Container })
}

// Since formats the time between two instants, in whole seconds if its error is half a second or more. It is empty
// if the instants are from different clocks or not known.
func Since(t, from evidence.Time) string {
	least, most, ok := t.Since(from)
	middle := (least + most) / 2
	switch {
	case !ok:
		return ""
	case most-least >= time.Second:
		return fmt.Sprintf("+%d s", (middle+time.Second/2)/time.Second)
	}
	return fmt.Sprintf("+%.2f s", middle.Seconds())
}
