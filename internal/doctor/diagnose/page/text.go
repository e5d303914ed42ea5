package page

import (
	"fmt"
	"io"
	"strings"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// writeTexts writes the reports for a terminal. Of several it first says how many causes there are, and then writes the
// report of one pod for each.
func writeTexts(w io.Writer, reports []result.Report, o Options) error {
	if len(reports) == 1 {
		return writeText(w, reports[0], o)
	}
	t := texter{width: max(o.Columns, 40), colour: o.Colour}
	ill, well, more := byCause(reports)
	t.line("", several(reports), "heading")
	for _, r := range ill {
		t.line("", "", "")
		if err := t.write(w); err != nil {
			return err
		}
		if err := writeText(w, r, o); err != nil {
			return err
		}
	}
	if more > 0 {
		t.line("", "", "")
		t.line("", fmt.Sprintf(moreCauses, more), "")
	}
	for i, line := range wellLines(well) {
		if i == 0 {
			t.line("", "", "")
		}
		t.line("", line, string(result.Nothing))
	}
	return t.write(w)
}

// write writes what the texter has, and empties it.
func (t *texter) write(w io.Writer) error {
	_, err := io.WriteString(w, t.b.String())
	t.b.Reset()
	return err
}

// writeText writes a report for a terminal: the cause and what to do first, then the timeline, the evidence, and the
// change and command of the remedy. If several pods have its cause, it first says which.
func writeText(w io.Writer, r result.Report, o Options) error {
	t := texter{width: max(o.Columns, 40), colour: o.Colour}
	t.line("", headline(r), string(r.Verdict))
	t.group(r.Group)
	if r.Group != nil && len(r.Group.Members) > 1 {
		t.line("", "", "")
		t.line("", fmt.Sprintf("One of them, %s: %s", r.Pod, r.Sentence), "heading")
	}
	if do := firstRemedy(r); do != "" {
		t.line("", "Do: "+do, "heading")
	} else if len(r.Findings) > 0 && r.Findings[0].Remedy.Command != "" && r.Verdict != result.Undecided {
		t.line("", "Do: "+r.Findings[0].Remedy.Command, "command")
	}
	if len(r.Timeline) > 0 {
		t.line("", "", "")
	}
	for line := range strings.Lines(timeline(r)) {
		t.line("  ", strings.TrimSuffix(line, "\n"), "")
	}
	for i, f := range r.Findings {
		t.finding(f, len(r.Findings) > 1 || r.Verdict == result.Undecided, i, firstRemedy(r))
	}
	if r.Decide != "" {
		t.line("", "", "")
		t.line("", "What would decide:", "heading")
		t.line("  ", "$ "+r.Decide, "command")
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"Missing:", r.Missing}, {"The evidence contradicts itself, or is limited:", r.Notes}} {
		if len(list.lines) == 0 {
			continue
		}
		t.line("", "", "")
		t.line("", list.title, "heading")
		for _, l := range list.lines {
			t.line("  ", l, "")
		}
	}
	return t.write(w)
}

// firstRemedy returns what is to be done about the cause; empty: it is not decided, or there is no remedy.
func firstRemedy(r result.Report) string {
	if len(r.Findings) == 0 || r.Verdict == result.Undecided {
		return ""
	}
	return r.Findings[0].Remedy.Sentence
}

type texter struct {
	b      strings.Builder
	width  int
	colour bool
}

// line writes a paragraph, wrapped at spaces. The parameter what chooses one of [colours].
func (t *texter) line(indent, text, what string) {
	for first := true; first || text != ""; first = false {
		room := t.width - len(indent)
		part := text
		if len([]rune(text)) > room {
			part = string([]rune(text)[:room])
			if at := strings.LastIndexByte(part, ' '); at > room/3 {
				part = part[:at]
			}
		}
		text = strings.TrimPrefix(text[len(part):], " ")
		fmt.Fprintln(&t.b, strings.TrimRight(indent+t.paint(what, part), " "))
		if first {
			indent = strings.Repeat(" ", max(len(indent), 2))
		}
	}
}

// finding writes a finding; the remedy that stands at the top of the report is not repeated.
func (t *texter) finding(f result.Finding, numbered bool, i int, first string) {
	t.line("", "", "")
	head := fmt.Sprintf("%s (%s)", f.Code, f.Confidence)
	if numbered {
		head = fmt.Sprintf("%d. %s: %s", i+1, head, f.Sentence)
	}
	t.line("", head, "heading")
	for _, q := range f.Evidence {
		t.quote("  ", q)
	}
	for _, q := range f.Against {
		t.quote("  against it: ", q)
	}
	t.line("  ", "It would be disproved by: "+f.Disproof, "")
	if f.Remedy.Sentence != "" && f.Remedy.Sentence != first {
		t.line("  ", "What fixes it: "+f.Remedy.Sentence, "")
	}
	if tried := f.Tried(); tried != "" {
		t.line("  ", tried, "")
	}
	t.part("patch.yaml:", f.Patch)
	t.part("What changes in the manifest:", f.Change)
	if f.Remedy.Command != "" { // it may use the patch
		t.line("  ", "$ "+f.Remedy.Command, "command")
	}
	t.line("  ", fmt.Sprintf("More: outrider explain %s", f.Code), "")
}

// part writes YAML under a title; nothing if it is empty.
func (t *texter) part(title, yaml string) {
	if yaml != "" {
		t.line("  ", title, "")
	}
	for line := range strings.Lines(yaml) {
		fmt.Fprintln(&t.b, "    "+t.paint("patch", strings.TrimRight(line, "\n")))
	}
}

func (t *texter) quote(indent string, q evidence.Quote) {
	from := ""
	if q.Source.File != "" {
		from = " (" + q.Source.Place() + ")"
	}
	at := ""
	if q.At.Known() {
		at = result.Instant(q.At) + " "
	}
	t.line(indent, at+q.Text+from, "")
}

// colours maps verdicts and kinds of text to codes for [visible.Paint].
var colours = map[string]string{
	string(result.Nothing): "32", string(result.Starting): "36", string(result.Found): "31", string(result.Undecided): "33",
	"heading": "1", "command": "36", "patch": "32",
}

// paint colours a part of the text, if the terminal shows colours.
func (t *texter) paint(what, text string) string {
	if !t.colour || colours[what] == "" || text == "" {
		return text
	}
	return visible.Paint(colours[what], text)
}
