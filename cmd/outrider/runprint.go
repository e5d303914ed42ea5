package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/run/localpod"
	"outrider.dev/startup"
)

// A runPrinter shows a pod that runs: its containers' lines, and between them what
// happens to it.
type runPrinter struct {
	w      io.Writer
	output cli.Output
	colour bool
	names  []string
	width  int
	err    error // the first one of writing
}

func newRunPrinter(w io.Writer, output cli.Output, o localpod.Options) *runPrinter {
	p := &runPrinter{w: w, output: output, colour: isTerminal(w), width: len("pod")}
	for _, c := range slices.Concat(o.Pod.Spec.InitContainers, o.Pod.Spec.Containers) {
		p.names = append(p.names, c.Name)
		p.width = max(p.width, len(c.Name))
	}
	return p
}

func (p *runPrinter) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format, args...); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *runPrinter) json(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		p.err = err
		return
	}
	p.printf("%s\n", text)
}

// A runLine is a line of a container, as JSON.
type runLine struct {
	Kind      string `json:"kind"`
	Container string `json:"container"`
	Line      string `json:"line"`
}

func (p *runPrinter) log(container, line string) {
	if p.output == cli.JSON {
		p.json(runLine{"log", container, line})
		return
	}
	p.printf("%s | %s\n", p.name(container), line)
}

// runColours are of the containers, in turn: cyan, yellow, green, magenta, blue.
var runColours = []int{36, 33, 32, 35, 34}

func (p *runPrinter) name(container string) string {
	text := fmt.Sprintf("%-*s", p.width, container)
	if i := slices.Index(p.names, container); p.colour && i >= 0 {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", runColours[i%len(runColours)], text)
	}
	return text
}

// quiet are answers that are of interest only when they are bad.
var quiet = map[string]string{"probe-answered": "probe failed"}

func (p *runPrinter) entry(e localpod.Entry) {
	if p.output == cli.JSON {
		p.json(e)
		return
	}
	what := e.What
	switch {
	case e.Kind == localpod.Happened:
	case e.Kind == localpod.Told && e.Failed && quiet[e.What] != "":
		what = string(e.Which) + " " + quiet[e.What]
	case e.Kind == localpod.Did && e.What == "run-hook":
		what = "runs its " + string(e.Which)
	case e.Kind == localpod.Did && e.What == "kill":
		what = "killed"
	default:
		return
	}
	name := e.Container
	if name == "" {
		name = "pod"
	}
	line := fmt.Sprintf("%s * %7.3fs %s", p.name(name), e.At.Seconds(), what)
	if e.Detail != "" {
		line += ": " + strings.ReplaceAll(e.Detail, "\n", " ")
	}
	p.printf("%s\n", line)
}

// runFindings are what keeps a run from being fine, in a few words each.
func runFindings(r localpod.Result) []string {
	out := slices.Clone(r.Failures)
	for _, v := range r.Violations {
		out = append(out, violationText(v))
	}
	return out
}

// breaches say what was violated, with the names for From and To in it.
var breaches = map[startup.Breach]string{
	startup.RanTooEarly:  "%[2]s ran before %[1]s was %[3]s",
	startup.NotFollowed:  "%[1]s restarted and %[2]s did not follow",
	startup.OutlivedFrom: "%[1]s ended while %[2]s still ran",
}

func violationText(v startup.Violation) string {
	text := fmt.Sprintf(breaches[v.How]+"%[4]s", v.Edge.From, v.Edge.To, v.Edge.After, "")
	if v.How == startup.RanTooEarly && v.By != startup.Forever {
		text += fmt.Sprintf(", %s too early", v.By.Round(time.Millisecond))
	}
	if v.How == startup.RanTooEarly && v.By == startup.Forever {
		text += ", which never came"
	}
	return text
}

func (p *runPrinter) summary(r localpod.Result) error {
	if p.output == cli.JSON {
		p.json(struct {
			Kind string `json:"kind"`
			localpod.Result
		}{"summary", r})
		return p.err
	}
	how := "ended"
	if r.Deleted {
		how = "was deleted, and ended"
	}
	p.printf("\n%s %s after %.1fs\n", r.Pod, how, r.Took.Seconds())
	for _, c := range r.Containers {
		p.printf("  %s  %s\n", p.name(c.Name), endText(c))
	}
	for _, v := range r.Violations {
		p.printf("not kept: %s (%s)\n", violationText(v), v.Edge)
	}
	for _, e := range r.Unjudged {
		p.printf("not seen: %s: it waits within its container\n", e)
	}
	return p.err
}

func endText(c localpod.Ended) string {
	text := "never started"
	switch {
	case c.ExitCode != nil:
		text = fmt.Sprintf("exit code %d", *c.ExitCode)
	case c.Started:
		text = "killed"
	}
	if c.Restarts > 0 {
		text += fmt.Sprintf(", restarted %d times", c.Restarts)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if c.Message != "" {
		text += ": " + strings.TrimSpace(c.Message)
	}
	return text
}
