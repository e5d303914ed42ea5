package chart

import (
	"fmt"
	"strings"

	"outrider.dev/startup"
)

const head = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
:root { color-scheme: light dark; --page: #f6f8fa; --box: #fff; --text: #1f2328; --dim: #59636e; --line: #d1d9e0; --well: #1a7f37; --ill: #cf222e }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --box: #161b22; --text: #e6edf3; --dim: #9198a1; --line: #3d444d; --well: #3fb950; --ill: #ff7b72 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: var(--text); background: var(--page); overflow-wrap: break-word }
h1 { font-size: 1.5rem; margin: 0 0 1rem }
h2 { font-size: 1.15rem; margin: 0 }
section { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.25rem; margin: 0 0 1.25rem }
.at { color: var(--dim); font-size: 13px; margin: 0 0 .5rem }
.verdict { font-weight: 600; border-left: 4px solid; padding: .15rem .7rem; margin: .6rem 0 }
.good { color: var(--well) } .bad { color: var(--ill) }
ul { margin: .4rem 0; padding-left: 1.2rem; font-size: 14px }
.scroll { overflow-x: auto; margin: .5rem 0 }
svg { display: block; max-width: 100%%; min-width: 46rem; height: auto }
summary { cursor: pointer; color: var(--dim); font-size: 14px }
table { border-collapse: collapse; font-size: 13px; margin-top: .4rem }
td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
details td { overflow-wrap: anywhere }
details td:first-child, details th:first-child { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
@media (max-width: 40rem) { body { margin: 1rem auto; padding: 0 .5rem } section { padding: .75rem } td, th { padding-right: .6rem } }
</style>
</head>
<body>
`

// A Section is the part of a page with one chart and the text about it.
type Section struct {
	Chart    Chart
	From     string   // file or cluster from which the pod was read
	Lines    []string // text before the chart
	Verdict  string   // shown first
	Good     bool     // the verdict is shown as good, otherwise as bad
	Timeline startup.Timeline
	LeftOut  []string // what the model does not cover; shown last
}

// A Page shows sections one below the other, all on one time axis.
type Page struct {
	Title    string
	Command  string     // the command that made the page; empty: not shown
	Summary  [][]string // a table before the sections; the first row is its header
	Sections []Section
}

// HTML returns the page as one document, which contains no script and makes no request.
func (p Page) HTML() string {
	var b strings.Builder
	fmt.Fprintf(&b, head, Escape(p.Title))
	fmt.Fprintf(&b, "<h1>%s</h1>\n", Escape(p.Title))
	if p.Command != "" {
		fmt.Fprintf(&b, "<p class=\"at\">Made by <code>%s</code></p>\n", Escape(p.Command))
	}
	if len(p.Summary) > 0 {
		b.WriteString("<section class=\"scroll\">\n<table>\n")
		for i, row := range p.Summary {
			cell := "td"
			if i == 0 {
				cell = "th"
			}
			b.WriteString("<tr>")
			for _, text := range row {
				fmt.Fprintf(&b, "<%s>%s</%s>", cell, Escape(text), cell)
			}
			b.WriteString("</tr>\n")
		}
		b.WriteString("</table>\n</section>\n")
	}
	var charts []Chart
	for _, s := range p.Sections {
		charts = append(charts, s.Chart)
	}
	for i, c := range aligned(charts) {
		s := p.Sections[i]
		s.Chart = c
		s.write(&b)
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}

func (s Section) write(b *strings.Builder) {
	fmt.Fprintf(b, "<section>\n<h2>%s</h2>\n", Escape(s.Chart.Title))
	if s.From != "" {
		fmt.Fprintf(b, "<p class=\"at\">%s</p>\n", Escape(s.From))
	}
	if s.Verdict != "" {
		class := "bad"
		if s.Good {
			class = "good"
		}
		fmt.Fprintf(b, "<p class=\"verdict %s\">%s</p>\n", class, Escape(s.Verdict))
	}
	writeList(b, s.Lines)
	if drawn := s.Chart; !drawn.empty() {
		drawn.Title, drawn.Notes = "", nil // the page shows them as text, which wraps
		fmt.Fprintf(b, "<div class=\"scroll\" tabindex=\"0\">\n%s</div>\n", drawn.SVG())
		writeList(b, s.Chart.Notes)
	}
	if len(s.Timeline) > 0 {
		writeTable(b, s.Timeline)
	}
	if len(s.LeftOut) > 0 {
		b.WriteString("<details><summary>what the model leaves out</summary>\n")
		writeList(b, s.LeftOut)
		b.WriteString("</details>\n")
	}
	b.WriteString("</section>\n")
}

func writeList(b *strings.Builder, items []string) {
	if len(items) == 0 {
		return
	}
	b.WriteString("<ul>\n")
	for _, l := range items {
		fmt.Fprintf(b, "<li>%s</li>\n", Escape(l))
	}
	b.WriteString("</ul>\n")
}

// empty reports whether the chart shows no event.
func (c Chart) empty() bool { return len(c.used()) == 0 }

func writeTable(b *strings.Builder, t startup.Timeline) {
	fmt.Fprintf(b, "<details><summary>%d events</summary>\n<table>\n<tr><th>at</th><th>container</th><th>what</th><th>detail</th></tr>\n", len(t))
	for _, ev := range t.Sorted() {
		subject := ev.Container
		if subject == "" {
			subject = "(pod)"
		}
		if ev.Incarnation > 0 {
			subject += fmt.Sprintf(" #%d", ev.Incarnation)
		}
		fmt.Fprintf(b, "<tr><td>%.3f s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			ev.At.Seconds(), Escape(subject), Escape(string(ev.What)), Escape(ev.Detail))
	}
	b.WriteString("</table></details>\n")
}
