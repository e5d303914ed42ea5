package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/chart"
	"outrider.dev/internal/model/verify"
	"outrider.dev/startup"
)

// A verified is an object and whether its plan holds.
type verified struct {
	running
	Holds   bool     `json:"holds"`
	Results []answer `json:"results"`
}

// An answer is the result for one promise.
type answer struct {
	Asked string `json:"promise"` // in words, in place of the result's own
	Holds bool   `json:"holds"`
	verify.Result
}

// words are the promises for people.
var words = map[verify.Promise]string{verify.Starts: "starts", verify.Stops: "stops"}

// questions are what the promises are about.
var questions = map[string]string{"starts": "at every start", "stops": "when the pod stops"}

func printVerified(w io.Writer, output string, all []verified) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "html":
		var sections []chart.Section
		var titles []string
		for _, v := range all {
			titles = append(titles, v.Object.String())
			sections = append(sections, v.sections()...)
		}
		return printed(w, chart.HTML("Verified: "+strings.Join(titles, ", "), sections))
	}
	p := printer{colour: isTerminal(w)}
	for i, v := range all {
		if i > 0 {
			p.line("")
		}
		p.head(v.running)
		for _, a := range v.Results {
			p.answer(v, a, columns(w))
		}
		p.leftOut(v)
	}
	return shown(w, p.String())
}

func (p *printer) answer(v verified, a answer, wide int) {
	p.line("\n%s", p.paint(verdictColour(a.Holds), a.verdict()))
	if a.Counterexample == nil {
		return
	}
	c := v.chart(a)
	c.Title = ""
	p.line("")
	p.WriteString(c.Text(chart.TextOptions{Width: min(wide, width), Color: p.colour}))
	p.line("")
	for i, ev := range a.Counterexample {
		p.line("%4d %s", i+1, strings.TrimRight(startup.Timeline{ev}.String(), "\n"))
	}
}

// verdict is the answer in a line.
func (a answer) verdict() string {
	looked := fmt.Sprintf("%s, %s deep, in %s", plural(a.States, "state"), plural(a.Depth, "event"), a.Took.Round(time.Millisecond))
	when := questions[a.Asked]
	switch {
	case a.Counterexample != nil && len(a.Faults) == 0:
		return when + ": broken, and nothing needs to go wrong for it"
	case a.Counterexample != nil:
		return fmt.Sprintf("%s: broken by %s: %s", when, plural(len(a.Faults), "fault"), strings.Join(a.Faults, "; "))
	case a.Holds:
		return fmt.Sprintf("%s: holds: %s; bound: %s", when, looked, a.Bound)
	case a.Proved >= 0:
		return fmt.Sprintf("%s: holds with up to %s; with %d not all states were explored, cut short by %s: %s; bound: %s",
			when, plural(a.Proved, "fault"), a.Proved+1, a.CutShort, looked, a.Bound)
	}
	return fmt.Sprintf("%s: nothing found, but not all states were explored, cut short by %s: %s; bound: %s", when, a.CutShort, looked, a.Bound)
}

// leftOut says what the answers do not cover.
func (p *printer) leftOut(v verified) {
	left := v.leftOut()
	if len(left) == 0 {
		return
	}
	p.line("\n%s", p.paint(faint, "The model leaves out:"))
	for _, l := range left {
		p.line("%s", p.paint(faint, "- "+l))
	}
}

// leftOut is what one of the answers leaves out: of two promises that were both
// verified, neither leaves the other one out.
func (v verified) leftOut() []string {
	var out []string
	for _, a := range v.Results {
		for _, l := range a.Omitted {
			if !slices.Contains(out, l) && !(len(v.Results) > 1 && l == verify.OmitsDeletion) {
				out = append(out, l)
			}
		}
	}
	return out
}

func (v verified) chart(a answer) chart.Chart {
	c := chart.Steps(v.names(), a.Counterexample, a.Violations)
	c.Title = v.Object.String() + ", Kubernetes " + v.Kubernetes
	return c
}

func (v verified) sections() []chart.Section {
	from := fmt.Sprintf("%s, document %d", v.File, v.Document)
	if len(v.Results) == 0 {
		return []chart.Section{{Chart: v.chart(answer{}), From: from, Verdict: noEdges, Good: true}}
	}
	var out []chart.Section
	for _, a := range v.Results {
		out = append(out, chart.Section{Chart: v.chart(a), From: from, Lines: v.sentences(), Verdict: a.verdict(), Good: a.Holds,
			Timeline: a.Counterexample, LeftOut: a.Omitted})
	}
	return out
}

// unproved is the error of pods whose plan does not hold; nil if all do.
func unproved(all []verified) error {
	for _, v := range all {
		for _, a := range v.Results {
			if !a.Holds {
				return fmt.Errorf("%s: document %d: %s: %s", v.File, v.Document, v.Object, a.verdict())
			}
		}
	}
	return nil
}
