package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"outrider.dev/internal/model/chart"
)

// Table writes the end of the story: what each act cost.
func Table(w io.Writer, all []Performance) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "act\trefused connections\trestarts\tapp ready after\trequests at stop\tfailed\t")
	for _, p := range all {
		ready := "never"
		if p.Ready > 0 {
			ready = seconds(p.Ready)
		}
		sent := fmt.Sprint(p.Sent)
		if p.Act.Job {
			ready, sent = "done "+ready, "-"
		}
		fmt.Fprintf(t, "%d %s\t%d\t%d\t%s\t%s\t%d\t\n", p.Number, p.Act.Title, p.Refused, max(p.Starts-1, 0), ready, sent, p.Failed)
	}
	return t.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// HTML is the whole story as one page that needs nothing else.
func HTML(all []Performance, services int) string {
	var sections []chart.Section
	for _, p := range all {
		c := p.Chart
		c.Title = fmt.Sprintf("Act %d: %s", p.Number, p.Act.Title)
		s := chart.Section{Chart: c, Lines: []string{p.Act.Tells}, Timeline: p.Result.Timeline, Good: p.Good()}
		s.Verdict = fmt.Sprintf("%d refused, %d restarts, ready after %s, %d of %d requests failed at stop",
			p.Refused, max(p.Starts-1, 0), seconds(p.Ready), p.Failed, p.Sent)
		if p.Act.Job {
			s.Verdict = fmt.Sprintf("%d refused, %d restarts, pod %s after %s", p.Refused, max(p.Starts-1, 0), p.Result.Status.Phase, seconds(p.Ready))
		}
		sections = append(sections, s)
	}
	return chart.HTML(fmt.Sprintf("The start of a pod in a mesh of %d services", services), sections)
}

// Good says whether nothing was refused, restarted or failed.
func (p Performance) Good() bool {
	return p.Refused == 0 && p.Starts <= 1 && p.Failed == 0 && p.Problem == "" && p.Ready > 0
}

// Missed is what of the story did not happen as it should: the first act must show the
// race, the others must be free of it.
func Missed(all []Performance) []string {
	var out []string
	for _, p := range all {
		race := p.Act.Order == "" && !p.Act.Park
		switch {
		case race && (p.Refused != 2 || p.Starts != 3):
			out = append(out, fmt.Sprintf("%s: %d refused, %d starts; want 2 and 3: this machine is too slow or too busy", p.Act.Title, p.Refused, p.Starts))
		case !race && !p.Good():
			out = append(out, fmt.Sprintf("%s: %d refused, %d starts, %d failed; %s", p.Act.Title, p.Refused, p.Starts, p.Failed, p.Problem))
		}
	}
	return out
}
