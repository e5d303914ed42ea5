package chart

import (
	"fmt"
	"html"
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
body { font: 15px/1.5 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
svg { max-width: 100%%; height: auto }
table { border-collapse: collapse; font-size: 13px }
td, th { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #eee }
td:first-child { text-align: right; font-variant-numeric: tabular-nums }
</style>
</head>
<body>
`

// HTML is a page with the charts, one below the other, and under each the
// timeline that it was made from, if there is one at its place. It is
// self-contained: no script, nothing fetched.
func HTML(title string, charts []Chart, timelines []startup.Timeline) string {
	var b strings.Builder
	fmt.Fprintf(&b, head, html.EscapeString(title))
	fmt.Fprintf(&b, "<h1>%s</h1>\n", html.EscapeString(title))
	for i, c := range charts {
		if c.Title != "" && c.Title != title {
			fmt.Fprintf(&b, "<h2>%s</h2>\n", html.EscapeString(c.Title))
		}
		b.WriteString(c.SVG())
		if i < len(timelines) {
			writeTable(&b, timelines[i])
		}
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}

func writeTable(b *strings.Builder, t startup.Timeline) {
	b.WriteString("<details><summary>timeline</summary>\n<table>\n<tr><th>at</th><th>container</th><th>what</th><th>detail</th></tr>\n")
	for _, ev := range t.Sorted() {
		who := ev.Container
		if who == "" {
			who = "(pod)"
		}
		if ev.Incarnation > 0 {
			who += fmt.Sprintf(" #%d", ev.Incarnation)
		}
		fmt.Fprintf(b, "<tr><td>%.3f s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			ev.At.Seconds(), html.EscapeString(who), html.EscapeString(string(ev.What)), html.EscapeString(ev.Detail))
	}
	b.WriteString("</table></details>\n")
}
