//go:build linux

package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/lab/localpod"
)

// A Run prints the output of a running pod: the lines of its containers, and between them the pod's events. It does
// not change the containers' lines, so that they are exact in a file. For a terminal, [cli.Run] makes control
// characters harmless.
type Run struct {
	w          io.Writer
	json       bool
	colour     bool
	containers []string
	width      int
	err        error // the first error of writing
}

// NewRun returns a Run that prints text or, with json, one JSON object for each line and event.
func NewRun(w io.Writer, t cli.Terminal, json bool, containers []string) *Run {
	r := &Run{w: w, json: json, colour: t.Colour, containers: containers, width: len("pod")}
	for _, c := range containers {
		r.width = max(r.width, len(c))
	}
	return r
}

func (r *Run) write(text string) {
	if _, err := io.WriteString(r.w, text); err != nil && r.err == nil {
		r.err = err
	}
}

func (r *Run) printf(format string, args ...any) {
	r.write(visible.Text(fmt.Sprintf(format, args...)))
}

func (r *Run) object(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		r.err = err
		return
	}
	r.write(string(text) + "\n")
}

// sgr matches the terminal codes that a line of the user's program may use: reset, bold, faint, and the colours from
// red to cyan. Other codes could hide text.
var sgr = regexp.MustCompile("\x1b\\[(?:[012]|3[1-6])(;(?:[012]|3[1-6]))*m")

// Line prints a line of a container.
func (r *Run) Line(container, line string) {
	if r.json {
		r.object(struct {
			Kind      string `json:"kind"`
			Container string `json:"container"`
			Line      string `json:"line"`
		}{"log", container, line})
		return
	}
	if r.colour {
		line = sgr.ReplaceAllStringFunc(line, func(s string) string { return visible.Colour(s[2 : len(s)-1]) }) + visible.Colour("0")
	}
	r.write(visible.Text(r.name(container)) + " | " + line + "\n")
}

// containerColours are the colours of the containers' names, in order: cyan, yellow, green, magenta, blue, and again.
var containerColours = []string{"36", "33", "32", "35", "34"}

func (r *Run) name(container string) string {
	text := fmt.Sprintf("%-*s", r.width, container)
	i := slices.Index(r.containers, container)
	if i < 0 {
		return text
	}
	p := printer{Terminal: cli.Terminal{Colour: r.colour}}
	return p.paint(containerColours[i%len(containerColours)], text)
}

// Entry prints an event of the pod.
func (r *Run) Entry(e localpod.Entry) {
	if r.json {
		r.object(e)
		return
	}
	what := e.What
	switch {
	case e.Kind == localpod.Happened:
	case e.Kind == localpod.Received && e.Failed && e.What == "probe-answered":
		what = string(e.Which) + " probe failed"
	case e.Kind == localpod.Did && e.What == "run-hook":
		what = "runs its " + string(e.Which)
	case e.Kind == localpod.Did && e.What == "kill":
		what = "killed"
	default:
		return
	}
	name := cmp.Or(e.Container, "pod")
	line := fmt.Sprintf("%s * %7.3fs %s", r.name(name), e.At.Seconds(), what)
	if e.Detail != "" {
		line += ": " + strings.ReplaceAll(e.Detail, "\n", " ")
	}
	r.printf("%s\n", line)
}

// Problems returns a sentence for each failure and each violation of a run.
func Problems(r localpod.Result) []string {
	out := slices.Clone(r.Failures)
	for _, v := range r.Violations {
		out = append(out, v.Sentence())
	}
	return out
}

// Summary prints the end of the run, and a diagnosis that was made only from the pod's status and logs. It returns
// the first error of all writes of r.
func (r *Run) Summary(end localpod.Result, d result.Report) error {
	if r.json {
		r.object(struct {
			Kind string `json:"kind"`
			localpod.Result
			Diagnosis result.Report `json:"diagnosis"`
		}{"summary", end, d})
		return r.err
	}
	r.printf("\n%s %s after %.1fs\n", end.Pod, or(end.Deleted, "was deleted, and ended", "ended"), end.Took.Seconds())
	for _, c := range end.Containers {
		r.printf("  %s  %s\n", r.name(c.Name), ended(c))
	}
	for _, v := range end.Violations {
		r.printf("not kept: %s (%s)\n", v.Sentence(), v.Edge)
	}
	for _, e := range end.Unjudged {
		r.printf("not observed: %s: it waits within its container\n", e)
	}
	r.printf("diagnosed by status and logs alone: %s\n", d.Sentence)
	return r.err
}

func ended(c localpod.Ended) string {
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
	for _, s := range []string{c.Reason, strings.TrimSpace(c.Message)} {
		if s != "" {
			text += ": " + s
		}
	}
	return text
}
