package diagnose

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Style paints a part of the text; nil: it stays as it is.
type Style func(what, text string) string

// Text writes a report for a terminal of that many columns: the sentence first, then the timeline,
// the evidence, and what ends it.
func (r Report) Text(w io.Writer, width int, style Style) error {
	if style == nil {
		style = func(_, text string) string { return text }
	}
	t := texter{width: max(width, 40), style: style}
	t.line("", fmt.Sprintf("%s: %s", r.Pod, r.Sentence), string(r.Verdict))
	t.moments(r.Timeline)
	for i, f := range r.Findings {
		t.finding(f, len(r.Findings) > 1 || r.Verdict == Undecided, i)
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
	_, err := io.WriteString(w, t.b.String())
	return err
}

type texter struct {
	b     strings.Builder
	width int
	style Style
}

// line writes a paragraph, broken at spaces.
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
		fmt.Fprintln(&t.b, strings.TrimRight(indent+t.style(what, part), " "))
		if first {
			indent = strings.Repeat(" ", max(len(indent), 2))
		}
	}
}

func (t *texter) moments(all []Moment) {
	if len(all) == 0 {
		return
	}
	t.line("", "", "")
	names := 0
	for _, m := range all {
		names = max(names, len(m.Container))
	}
	from := all[0].At
	for _, m := range all {
		least, most, ok := m.At.Since(from)
		since := ""
		if ok {
			since = offset(least, most)
		}
		t.line("  ", fmt.Sprintf("%-13s %9s  %-*s  %s", instant(m.At), since, names, m.Container, m.Text), "")
	}
}

// offset is the time since the first moment: whole seconds if it is not known better.
func offset(least, most time.Duration) string {
	middle := (least + most) / 2
	if most-least >= time.Second {
		return fmt.Sprintf("+%d s", (middle+time.Second/2)/time.Second)
	}
	return fmt.Sprintf("+%.2f s", middle.Seconds())
}

func (t *texter) finding(f Finding, numbered bool, i int) {
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
	t.line("  ", "It would be wrong by: "+f.Disproof, "")
	if f.Remedy.Sentence != "" {
		t.line("  ", "What ends it: "+f.Remedy.Sentence, "")
	}
	if tried := f.Tried(); tried != "" {
		t.line("  ", tried, "")
	}
	if f.Remedy.Command != "" {
		t.line("  ", "$ "+f.Remedy.Command, "command")
	}
	for line := range strings.Lines(f.Patch) {
		fmt.Fprintln(&t.b, "    "+t.style("patch", strings.TrimRight(line, "\n")))
	}
}

func (t *texter) quote(indent string, q Quote) {
	from := ""
	if q.Source.File != "" {
		from = " (" + q.Source.String() + ")"
	}
	at := ""
	if q.At.Known() {
		at = instant(q.At) + " "
	}
	t.line(indent, at+q.Text+from, "")
}
