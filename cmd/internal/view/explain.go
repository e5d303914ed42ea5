package view

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/finding"
)

// Codes prints all codes with the commands that report them.
func Codes(w io.Writer, output string, all []finding.Entry) error {
	if output == "json" {
		return cli.WriteJSON(w, all)
	}
	rows := [][]string{{"CODE", "BY", "WHAT"}}
	for _, c := range all {
		rows = append(rows, []string{string(c.Code), strings.Join(c.By, ", "), c.Title})
	}
	return table(w, rows)
}

// Code prints the page of one code.
func Code(w io.Writer, t cli.Terminal, output string, c finding.Entry) error {
	if output == "json" {
		return cli.WriteJSON(w, c)
	}
	p := printer{Terminal: t}
	p.line("%s  %s", p.paint(bold, string(c.Code)), p.paint(faint, fmt.Sprintf("%s, by %s", c.Severity, strings.Join(c.By, ", "))))
	p.markdown(strings.ToUpper(c.Title[:1]) + c.Title[1:] + ".")
	p.markdown(c.Explanation)
	p.line("%s\n", p.paint(bold, "Do"))
	p.markdown(c.Do)
	p.line("More: docs/%s", c.Doc)
	return p.print(w)
}

// markdown prints paragraphs, lists and sh blocks, with empty lines between them. Only a line of an sh block may be
// wider than the terminal: it must stay as it is to be pasted.
func (p *printer) markdown(text string) {
	columns := min(p.Columns, width)
	for block := range strings.SplitSeq(text, "\n\n") {
		script, is := strings.CutPrefix(block, "```sh\n")
		items, list := strings.CutPrefix(block, "- ")
		switch {
		case is:
			for line := range strings.Lines(strings.TrimSuffix(script, "```")) {
				p.line("    %s", p.paint(green, strings.TrimSuffix(line, "\n")))
			}
		case list:
			for item := range strings.SplitSeq(items, "\n- ") {
				p.line("- %s", joined(readable(item), columns-2, "\n  "))
			}
		default:
			p.line("%s", joined(readable(block), columns, "\n"))
		}
		p.line("")
	}
}

// joined wraps a text and joins its lines. A command in backticks stays on one line, to be pasted.
func joined(text string, columns int, sep string) string {
	text = span.ReplaceAllStringFunc(text, func(s string) string { return strings.ReplaceAll(s, " ", "\x00") })
	return strings.ReplaceAll(strings.Join(wrap(text, columns), sep), "\x00", " ")
}

var span = regexp.MustCompile("`[^`\n]+`")

var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)\s]+)\)`)

// readable replaces the links of a page of docs/findings by their texts and where they lead.
func readable(text string) string {
	return link.ReplaceAllStringFunc(text, func(l string) string {
		m := link.FindStringSubmatch(l)
		to := m[2]
		if rest, up := strings.CutPrefix(to, "../"); up {
			to = "docs/" + rest
		} else if code, page := strings.CutSuffix(to, ".md"); page && !strings.Contains(to, "/") {
			to = "outrider explain " + code
		}
		return m[1] + " (" + to + ")"
	})
}
