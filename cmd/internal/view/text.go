// Package view prints the results of outrider's commands: as text for a terminal, as JSON, as pictures and
// as pages.
//
// Its functions print values to a writer. They read no file and no environment variable; the properties of the
// terminal are a parameter.
package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/scenario"
)

// A printer collects text.
type printer struct {
	strings.Builder
	cli.Terminal
}

// SGR codes of terminals.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p *printer) paint(colour, s string) string {
	if !p.Colour || colour == "" || s == "" {
		return s
	}
	return visible.Paint(colour, s)
}

// each prints the elements of a list, with a blank line between them. The function one prints one element.
func each[T any](p *printer, all []T, one func(T)) {
	for i, o := range all {
		if i > 0 {
			p.line("")
		}
		one(o)
	}
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// print writes the collected text. Control characters, which a manifest may contain in names and commands, become
// visible and harmless.
func (p *printer) print(w io.Writer) error {
	_, err := io.WriteString(w, visible.Text(p.String()))
	return err
}

// width is the column at which lines are wrapped.
const width = 100

// item prints a label and a text, which is wrapped.
func (p *printer) item(label, colour, text string) {
	const indent = 13
	for i, line := range wrap(text, width-indent) {
		if i > 0 {
			p.WriteString(strings.Repeat(" ", indent) + p.paint(colour, line) + "\n")
			continue
		}
		p.line("  %-10s %s", label, p.paint(colour, line))
	}
}

// wrap breaks a text into lines of at most the given number of columns. Only a longer word makes a longer line.
func wrap(text string, columns int) []string {
	lines := []string{""}
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch last := &lines[len(lines)-1]; {
		case i == 0:
			*last, at = word, n
		case at+1+n > columns:
			lines, at = append(lines, word), n
		default:
			*last += " " + word
			at += 1 + n
		}
	}
	return lines
}

// table prints rows with aligned columns; the first row is the header.
func table(w io.Writer, rows [][]string) error {
	var p printer
	t := tabwriter.NewWriter(&p, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush() // writing to a printer cannot fail
	return p.print(w)
}

func verdictColour(good bool) string {
	if good {
		return green
	}
	return red
}

// or returns the first text if b is true, and else the second one.
func or(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

func plural(n int, noun string) string { return scenario.Plural(n, noun) }
