package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/startup"
)

// planDot is the plans as one Graphviz graph, a cluster for each.
func planDot(plans []planned) string {
	var b strings.Builder
	b.WriteString("digraph outrider {\n  rankdir=LR\n  node [shape=box style=rounded fontname=\"sans-serif\"]\n  edge [fontname=\"sans-serif\" fontsize=10]\n")
	for i, p := range plans {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%q\n", i, p.Object.String())
		for _, c := range p.order() {
			fmt.Fprintf(&b, "    %q [label=%q]\n", nodeID(i, c.Name), c.Name+"\n"+p.container(c))
		}
		for _, e := range p.shown() {
			fmt.Fprintf(&b, "    %q -> %q [label=%q color=%q]\n", nodeID(i, e.From), nodeID(i, e.To), edgeLabel(e), edgeColours[e.By])
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func nodeID(plan int, name string) string { return fmt.Sprintf("%d/%s", plan, name) }

func edgeLabel(e edgeView) string {
	if e.By == "" {
		return string(e.After) + ", kept by nothing"
	}
	return string(e.After) + ", " + string(e.By)
}

// edgeColours: green is kept at every start, blue at the first one, amber fails
// open or polls, red is a guess.
var edgeColours = map[startup.Mechanism]string{
	startup.Gate: "#1a7f37", startup.InitDone: "#1a7f37", startup.Native: "#0969da", startup.Hold: "#9a6700",
	startup.HealthLoop: "#9a6700", startup.PostStartProbe: "#cf222e", startup.Sleep: "#cf222e", "": "#cf222e",
}

// Sizes of the picture.
const (
	boxWidth  = 190
	boxHeight = 46 // at least
	lineGap   = 17 // between the edges that end at one box, each with its label
	gapX      = 150
	gapY      = 34
	margin    = 24
	heading   = 40
)

// A box is a container and where it is drawn.
type box struct {
	startup.Container
	x, y, height int
	in           []string // who it waits for, from top to bottom
}

// entry is where the edge from a container ends.
func (b box) entry(from string) int {
	i := slices.Index(b.in, from)
	return b.y + b.height*(i+1)/(len(b.in)+1)
}

// layout gives each container a column, one to the right of all that it waits
// for, below those that are in the column already.
func (p planned) layout() (boxes map[string]box, order []string, width, height int) {
	column, below := map[string]int{}, map[int]int{}
	boxes = map[string]box{}
	edges := p.shown()
	for _, c := range p.order() {
		at := 0
		b := box{Container: c}
		for _, e := range edges {
			if from, ok := column[e.From]; ok && e.To == c.Name {
				at = max(at, from+1)
				b.in = append(b.in, e.From)
			}
		}
		slices.SortStableFunc(b.in, func(x, y string) int { return boxes[x].y - boxes[y].y })
		b.height = max(boxHeight, lineGap*(len(b.in)+1))
		b.x, b.y = margin+at*(boxWidth+gapX), heading+margin+below[at]
		column[c.Name], below[at] = at, below[at]+b.height+gapY
		boxes[c.Name], order = b, append(order, c.Name)
		width, height = max(width, b.x+boxWidth+margin), max(height, b.y+b.height+margin)
	}
	return boxes, order, width, height
}

// planSVG draws the plans below one another.
func planSVG(plans []planned) string {
	var body strings.Builder
	width, height := 320, 0
	for _, p := range plans {
		w, h := svgPlan(&body, p, height)
		width, height = max(width, w), height+h
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="13">`+"\n",
		width, height, width, height)
	b.WriteString("<title>start-up plans</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	b.WriteString(body.String() + "</svg>\n")
	return b.String()
}

// svgPlan draws one plan from y on, and returns its size.
func svgPlan(b *strings.Builder, p planned, y int) (width, height int) {
	boxes, order, width, height := p.layout()
	fmt.Fprintf(b, `<g transform="translate(0 %d)">`+"\n", y)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="16" font-weight="600" fill="#1f2328">%s</text>`+"\n",
		margin, heading, escape(p.Object.String()+", Kubernetes "+p.Kubernetes))
	for _, e := range p.shown() {
		svgEdge(b, e, boxes[e.From], boxes[e.To])
	}
	for _, name := range order {
		svgBox(b, p, boxes[name])
	}
	b.WriteString("</g>\n")
	return width, height
}

func svgBox(b *strings.Builder, p planned, at box) {
	fill, dash := "#f6f8fa", ""
	for _, n := range p.Expected {
		if n == at.Name {
			fill, dash = "#ffffff", ` stroke-dasharray="5 4"`
		}
	}
	kind, _, _ := strings.Cut(p.container(at.Container), ",")
	if at.Health != startup.NoHealth {
		kind += ", healthy by " + string(at.Health)
	}
	fmt.Fprintf(b, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="7" fill="%s" stroke="#57606a"%s/>`,
		escape(at.Name+": "+p.container(at.Container)), at.x, at.y, boxWidth, at.height, fill, dash)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="600" fill="#1f2328">%s</text>`, at.x+12, at.y+20, escape(short(at.Name, 24)))
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="11" fill="#57606a">%s</text></g>`+"\n", at.x+12, at.y+36, escape(short(kind, 32)))
}

func svgEdge(b *strings.Builder, e edgeView, from, to box) {
	if from.Name == "" || to.Name == "" {
		return // optional, and absent
	}
	colour := edgeColours[e.By]
	x1, y1, x2, y2 := from.x+boxWidth, from.y+from.height/2, to.x, to.entry(e.From)
	bend := max(40, (x2-x1)/2)
	dash := ""
	if !e.Present {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(b, `<g><title>%s</title><path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="%s" stroke-width="1.6"%s/>`,
		escape(e.String()), x1, y1, x1+bend, y1, x2-bend, y2, x2-8, y2, colour, dash)
	fmt.Fprintf(b, `<path d="M%d %d l-9 -4.5 v9 z" fill="%s"/>`, x2, y2, colour)
	// Nearer to the end, where the lines are apart.
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="11" text-anchor="end" fill="%s">%s</text></g>`+"\n", x2-12, y2-5, colour, escape(edgeLabel(e)))
}

func short(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-1] + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
