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
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328; background: #f6f8fa }
h1 { font-size: 1.5rem; margin: 0 0 1rem }
h2 { font-size: 1.15rem; margin: 0 }
section { background: #fff; border: 1px solid #d1d9e0; border-radius: 8px; padding: 1rem 1.25rem; margin: 0 0 1.25rem }
.at { color: #59636e; font-size: 13px; margin: 0 0 .5rem }
.verdict { font-weight: 600; border-left: 4px solid; padding: .15rem .7rem; margin: .6rem 0 }
.good { color: #1a7f37 } .bad { color: #cf222e }
ul { margin: .4rem 0; padding-left: 1.2rem; font-size: 14px }
.scroll { overflow-x: auto; margin: .5rem 0 }
svg { display: block; max-width: 100%%; min-width: 44rem; height: auto }
summary { cursor: pointer; color: #59636e; font-size: 14px }
table { border-collapse: collapse; font-size: 13px; margin-top: .4rem }
td { overflow-wrap: anywhere }
td, th { text-align: left; padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid #e4e8ec; vertical-align: top }
td:first-child, th:first-child { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
</style>
</head>
<body>
`

// A Section of a page is a chart with what is to be said about it.
type Section struct {
	Chart    Chart
	From     string   // where the pod comes from
	Lines    []string // before the chart
	Verdict  string   // stands first
	Good     bool     // the verdict is
	Timeline startup.Timeline
	LeftOut  []string // of the model; last
}

// HTML is a page with the sections, one below the other. It is self-contained: no
// script, nothing fetched.
func HTML(title string, sections []Section) string {
	var b strings.Builder
	fmt.Fprintf(&b, head, markup(title))
	fmt.Fprintf(&b, "<h1>%s</h1>\n", markup(title))
	for _, s := range sections {
		s.write(&b)
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}

func (s Section) write(b *strings.Builder) {
	fmt.Fprintf(b, "<section>\n<h2>%s</h2>\n", markup(s.Chart.Title))
	if s.From != "" {
		fmt.Fprintf(b, "<p class=\"at\">%s</p>\n", markup(s.From))
	}
	if s.Verdict != "" {
		class := "bad"
		if s.Good {
			class = "good"
		}
		fmt.Fprintf(b, "<p class=\"verdict %s\">%s</p>\n", class, markup(s.Verdict))
	}
	writeList(b, s.Lines)
	if drawn := s.Chart; !drawn.empty() {
		drawn.Title = "" // stands above
		fmt.Fprintf(b, "<div class=\"scroll\">\n%s</div>\n", drawn.SVG())
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
		fmt.Fprintf(b, "<li>%s</li>\n", markup(l))
	}
	b.WriteString("</ul>\n")
}

// empty says that nothing happens in the chart.
func (c Chart) empty() bool { return len(c.used()) == 0 }

func writeTable(b *strings.Builder, t startup.Timeline) {
	fmt.Fprintf(b, "<details><summary>%d events</summary>\n<table>\n<tr><th>at</th><th>container</th><th>what</th><th>detail</th></tr>\n", len(t))
	for _, ev := range t.Sorted() {
		who := ev.Container
		if who == "" {
			who = "(pod)"
		}
		if ev.Incarnation > 0 {
			who += fmt.Sprintf(" #%d", ev.Incarnation)
		}
		fmt.Fprintf(b, "<tr><td>%.3f s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			ev.At.Seconds(), markup(who), markup(string(ev.What)), markup(ev.Detail))
	}
	b.WriteString("</table></details>\n")
}
