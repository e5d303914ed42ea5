package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/diagnose/result"
)

// Table writes a table with a row for each act: refused connections, restarts, the time until the app was ready,
// and failed requests.
func Table(w io.Writer, all []Performance) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows(all) {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	return t.Flush()
}

// rows returns the rows of the table. The first row is the header.
func rows(all []Performance) [][]string {
	out := [][]string{{"act", "refused connections", "restarts", "app ready after", "requests at stop", "failed"}}
	for _, p := range all {
		ready := "never"
		if p.Ready > 0 {
			ready = seconds(p.Ready)
		}
		sent := fmt.Sprint(p.Sent)
		if p.Act.Job {
			ready, sent = "done "+ready, "-"
		}
		out = append(out, []string{fmt.Sprintf("%d %s", p.Number, p.Act.Title), fmt.Sprint(p.Refused), fmt.Sprint(max(p.Starts-1, 0)), ready, sent, fmt.Sprint(p.Failed)})
	}
	return out
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// HTML returns all acts as one self-contained page. command is the command line that the page shows as its
// origin.
func HTML(all []Performance, services int, command string) string {
	var sections []chart.Section
	for _, p := range all {
		s := chart.Section{Chart: p.titled(), Lines: []string{p.Act.Lead}, Timeline: p.Result.Timeline, Good: p.Good()}
		s.Verdict = fmt.Sprintf("%d refused, %d restarts, ready after %s, %d of %d requests failed at stop",
			p.Refused, max(p.Starts-1, 0), seconds(p.Ready), p.Failed, p.Sent)
		if p.Act.Job {
			s.Verdict = fmt.Sprintf("%d refused, %d restarts, pod %s after %s", p.Refused, max(p.Starts-1, 0), p.Result.Status.Phase, seconds(p.Ready))
		}
		sections = append(sections, s)
	}
	return chart.Page{
		Title: fmt.Sprintf("The start of a pod in a mesh of %d services", services), Command: command,
		Summary: rows(all), Sections: sections,
	}.HTML()
}

// SVG returns a picture of all acts on one time axis.
func SVG(all []Performance) string {
	var charts []chart.Chart
	for _, p := range all {
		charts = append(charts, p.titled())
	}
	return chart.SVG(charts)
}

// WriteReport writes the acts as one picture if the file's name ends in .svg, and as a page otherwise. command is
// as in [HTML].
func WriteReport(file string, all []Performance, services int, command string) error {
	text := HTML(all, services, command)
	if filepath.Ext(file) == ".svg" {
		text = SVG(all)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func (p Performance) titled() chart.Chart {
	c := p.Chart
	c.Title = fmt.Sprintf("Act %d: %s (pod awesome-%d)", p.Number, p.Act.Title, p.Number)
	return c
}

// Good reports whether nothing was refused, restarted or failed in the act.
func (p Performance) Good() bool {
	return p.Refused == 0 && p.Starts <= 1 && p.Failed == 0 && p.Problem == "" && p.Ready > 0
}

// Missed returns the differences from the expected results: an act without order and parking must show the race,
// and the others must not.
func Missed(all []Performance) []string {
	var out []string
	for _, p := range all {
		race := p.Act.Order == "" && !p.Act.Park
		switch {
		case race && (p.Refused != 2 || p.Starts != 3):
			out = append(out, fmt.Sprintf("%s: %d refused, %d starts; want 2 and 3: this machine is too slow or too busy", p.Act.Title, p.Refused, p.Starts))
		case !race && !p.Good():
			out = append(out, fmt.Sprintf("%s: %d refused, %d starts, %d failed; %s", p.Act.Title, p.Refused, p.Starts, p.Failed, p.Problem))
		case p.cause() != p.Act.Cause:
			out = append(out, fmt.Sprintf("%s: the diagnosis is %q, and not %q: %s", p.Act.Title, p.cause(), p.Act.Cause, p.Diagnosis.Sentence))
		}
	}
	return out
}

// cause returns the code that the diagnosis found.
func (p Performance) cause() finding.Code {
	if p.Diagnosis.Verdict != result.Found {
		return ""
	}
	return p.Diagnosis.Findings[0].Code
}
