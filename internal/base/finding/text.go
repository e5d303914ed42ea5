package finding

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"outrider.dev/internal/base/cli/visible"
)

// Codes of colours and weights for [visible.Colour].
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

var colours = map[Severity]string{Error: red, Warning: yellow, Note: cyan}

// width is the maximum length of a line of prose. Commands and lines of the file are never wrapped.
const width = 100

// WriteText writes findings for people, in their order, grouped by object. Each finding shows its line of the
// file with the evidence marked.
func WriteText(w io.Writer, all []Finding, colour bool) error {
	p := printer{colour: colour}
	for i, f := range all {
		if i == 0 || f.Object != all[i-1].Object || f.File != all[i-1].File {
			if i > 0 {
				p.WriteByte('\n')
			}
			p.line("%s  %s", p.paint(bold, f.Object.String()), p.paint(faint, f.File))
		}
		p.finding(f)
	}
	_, err := io.WriteString(w, visible.Text(p.String()))
	return err
}

// Summary returns the number of findings of each severity, such as "1 error, 2 warnings".
func Summary(all []Finding) string {
	var parts []string
	for i := len(Severities) - 1; i >= 0; i-- {
		n := 0
		for _, f := range all {
			if f.Severity == Severities[i] {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, "1 "+string(Severities[i]))
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, Severities[i]))
		}
	}
	if parts == nil {
		return "no findings"
	}
	return strings.Join(parts, ", ")
}

type printer struct {
	strings.Builder
	colour bool
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *printer) paint(colour, s string) string {
	if !p.colour || s == "" {
		return s
	}
	return visible.Paint(colour, s)
}

func (p *printer) finding(f Finding) {
	p.line("\n  %s: %s %s", p.paint(colours[f.Severity], string(f.Severity)), p.paint(bold, strings.Join(strings.Fields(f.Title), " ")), p.paint(faint, "["+string(f.Code)+"]"))
	p.evidence(f)
	p.item("why", f.Why)
	p.item("known", f.Source)
	p.item("do", f.Remedy.Sentence)
	if f.Remedy.Command != "" {
		p.line("    %-6s %s", "run", p.paint(green, f.Remedy.Command))
	}
}

// evidence writes the line of the file with a mark below the evidence. Without a line, it writes the field and
// its value.
func (p *printer) evidence(f Finding) {
	if f.Line == 0 || f.Text == "" {
		if f.Field != "" || f.Evidence != "" {
			p.item("at", strings.Trim(f.Field+": "+f.Evidence, ": "))
		}
		return
	}
	text := []rune(strings.ReplaceAll(strings.TrimRight(f.Text, " \r\n"), "\t", " "))
	from := min(max(f.Column-1-f.Skipped, 0), len(text))
	size := min(max(f.Width, 1), max(len(text)-from, 1))
	cut := 0 // indentation that all lines share
	for cut < from && text[cut] == ' ' {
		cut++
	}
	if from-cut > 70 { // cut the beginning, so that the evidence is within the width
		cut = from - 20
	}
	shown := text[cut:]
	if cut > 0 && text[cut-1] != ' ' {
		shown = append([]rune("..."), shown...)
		from += 3
	}
	if len(shown) > width {
		shown = append(shown[:width-3:width-3], []rune("...")...)
		size = max(min(size, width-3-(from-cut)), 1)
	}
	number := fmt.Sprint(f.Line)
	p.line("    %s %s", p.paint(faint, number+" |"), string(shown))
	p.line("    %s %s", p.paint(faint, strings.Repeat(" ", len(number))+" |"),
		strings.Repeat(" ", from-cut)+p.paint(cmp.Or(colours[f.Severity], red), strings.Repeat("^", size)))
	if f.Field != "" {
		p.item("at", f.Field)
	}
}

// item writes a label and a text, wrapped at width.
func (p *printer) item(label, text string) {
	if text == "" {
		return
	}
	const indent = 11
	at := indent
	fmt.Fprintf(p, "    %-6s ", label)
	for i, w := range strings.Fields(text) {
		n := utf8.RuneCountInString(w)
		switch {
		case i == 0:
		case at+1+n > width:
			p.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			p.WriteByte(' ')
			at++
		}
		p.WriteString(w)
		at += n
	}
	p.WriteByte('\n')
}
