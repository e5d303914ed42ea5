package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
)

// SimulateOutputs lists the formats of [Simulations]; the first is the default.
var SimulateOutputs = []string{"text", "json", "svg", "html"}

// Simulations prints the outcomes of simulated pods.
func Simulations(w io.Writer, t cli.Terminal, output string, all []scenario.Simulation) error {
	var charts []chart.Chart
	var sections []chart.Section
	var titles []string
	for _, s := range all {
		c := s.Outcome.Chart(s.Plan)
		c.Title = chartTitle(s.Subject)
		lines := append(s.Sentences(), s.Assumptions()...)
		charts, titles = append(charts, c), append(titles, s.Object.String())
		sections = append(sections, chart.Section{Chart: c, From: source(s.Object), Lines: lines, Verdict: s.Verdict(), Good: s.Kept(), Timeline: s.Outcome.Timeline})
	}
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "svg":
		_, err := io.WriteString(w, chart.SVG(charts))
		return err
	case "html":
		_, err := io.WriteString(w, chart.Page{Title: "Simulated: " + strings.Join(titles, ", "), Sections: sections}.HTML())
		return err
	}
	p := printer{Terminal: t}
	for i, s := range all {
		if i > 0 {
			p.line("")
		}
		p.subject(s.Subject)
		for _, a := range s.Assumptions() {
			p.line("  %s", p.paint(faint, a))
		}
		p.line("")
		p.chart(charts[i], t.Columns)
		p.line("%s", p.paint(verdictColour(s.Kept()), s.Verdict()))
	}
	return p.print(w)
}

// VerifyOutputs lists the formats of [Verifications]; the first is the default.
var VerifyOutputs = []string{"text", "json", "html"}

// Verifications prints whether the plans of pods hold. For a plan that does not hold, it prints the shortest
// counterexample.
func Verifications(w io.Writer, t cli.Terminal, output string, all []scenario.Verification) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "html":
		var sections []chart.Section
		var titles []string
		for _, v := range all {
			titles = append(titles, v.Object.String())
			sections = append(sections, verifySections(v)...)
		}
		_, err := io.WriteString(w, chart.Page{Title: "Verified: " + strings.Join(titles, ", "), Sections: sections}.HTML())
		return err
	}
	p := &printer{Terminal: t}
	each(p, all, p.verification)
	return p.print(w)
}

func (p *printer) verification(v scenario.Verification) {
	p.subject(v.Subject)
	for _, a := range v.Results {
		p.line("\n%s", p.paint(verdictColour(a.Holds), a.Verdict()))
		p.counterexample(v, a)
	}
	left := v.LeftOut()
	if len(left) > 0 {
		p.line("\n%s", p.paint(faint, "The model leaves out:"))
	}
	for _, l := range left {
		p.line("%s", p.paint(faint, "- "+l))
	}
}

// subject prints the object and its plan.
func (p *printer) subject(s scenario.Subject) {
	p.title(s.Object, s.Kubernetes)
	for _, sentence := range s.Sentences() {
		p.line("  %s", sentence)
	}
	if len(s.Plan.Edges) == 0 {
		p.line("  %s", scenario.NoEdges)
	}
}

// title prints the object in bold, and its source.
func (p *printer) title(o podfile.Object, kubernetes string) {
	p.line("%s", p.paint(bold, o.String())+p.paint(faint, fmt.Sprintf("  %s, Kubernetes %s", source(o), kubernetes)))
}

func source(o podfile.Object) string { return fmt.Sprintf("%s, document %d", o.File, o.Document) }

func chartTitle(s scenario.Subject) string {
	return s.Object.String() + ", Kubernetes " + s.Kubernetes
}

func (p *printer) chart(c chart.Chart, columns int) {
	c.Title = "" // printed above already
	p.WriteString(c.Text(chart.TextOptions{Width: columns, Color: p.Colour}))
}

func (p *printer) counterexample(v scenario.Verification, a scenario.Answer) {
	if a.Counterexample == nil {
		return
	}
	p.line("")
	p.chart(answerChart(v, a), min(p.Columns, width))
	p.line("")
	for i, ev := range a.Counterexample {
		p.line("%4d %s", i+1, strings.TrimRight(startup.Timeline{ev}.String(), "\n"))
	}
}

func answerChart(v scenario.Verification, a scenario.Answer) chart.Chart {
	c := chart.Steps(v.Names(), a.Counterexample, a.Violations)
	c.Title = chartTitle(v.Subject)
	return c
}

func verifySections(v scenario.Verification) []chart.Section {
	if len(v.Results) == 0 {
		return []chart.Section{{Chart: answerChart(v, scenario.Answer{}), From: source(v.Object), Verdict: scenario.NoEdges, Good: true}}
	}
	var out []chart.Section
	for _, a := range v.Results {
		out = append(out, chart.Section{Chart: answerChart(v, a), From: source(v.Object), Lines: v.Sentences(), Verdict: a.Verdict(), Good: a.Holds,
			Timeline: a.Counterexample, LeftOut: a.Omitted})
	}
	return out
}

// A Meter shows the progress of a search that takes more than a second.
type Meter struct {
	w     io.Writer
	show  bool
	began time.Time
	shown bool
}

// NewMeter returns a meter that shows nothing if the output is not a terminal.
func NewMeter(w io.Writer, t cli.Terminal) *Meter {
	return &Meter{w: visible.Unwrap(w), show: t.Colour, began: time.Now()}
}

// Show prints the progress in place of the previous progress line.
func (m *Meter) Show(what string, p verify.Progress) {
	if !m.show || time.Since(m.began) < time.Second {
		return
	}
	m.shown = true
	fmt.Fprintf(m.w, "\r\x1b[K%s: %d states, %s, %d events deep, %d open", visible.Plain(what), p.States, scenario.Plural(p.Faults, "fault"), p.Depth, p.Open)
}

// Clear removes the progress line.
func (m *Meter) Clear() {
	if m.shown {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
