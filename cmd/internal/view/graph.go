package view

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/startup"
)

// planDot returns the plans as one Graphviz graph with a cluster for each plan.
func planDot(plans []plan.Report) string {
	var b strings.Builder
	b.WriteString("digraph outrider {\n  rankdir=LR\n  node [shape=box style=rounded fontname=\"sans-serif\"]\n  edge [fontname=\"sans-serif\" fontsize=10]\n")
	for i, p := range plans {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%q\n", i, p.Object.String())
		for _, c := range p.Order() {
			fmt.Fprintf(&b, "    %q [label=%q]\n", nodeID(i, c.Name), c.Name+"\n"+p.Describe(c))
		}
		for _, e := range p.Essential() {
			fmt.Fprintf(&b, "    %q -> %q [label=%q color=%q]\n", nodeID(i, e.From), nodeID(i, e.To), edgeLabel(e), colours[e.By].svg)
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func nodeID(plan int, name string) string { return fmt.Sprintf("%d/%s", plan, name) }

func edgeLabel(e plan.Edge) string {
	if e.By == "" {
		return string(e.After) + ", kept by nothing"
	}
	return string(e.After) + ", " + string(e.By)
}

// Sizes of the picture.
const (
	boxHeight  = 44 // minimum
	lineGap    = 17 // between the edges that end at one box; leaves room for their labels
	stairs     = 34 // horizontal distance between the left sides of a box and the next one
	trunk      = 15 // distance from the left of a box to the line that goes down from it
	gapY       = 16
	margin     = 24
	heading    = 40
	letterName = 8.2 // width of a letter in names
	letterText = 6.3 // width of a letter in small text
)

// A box is a container with its position in the picture.
type box struct {
	startup.Container
	text                string // below the name
	x, y, width, height int
	in                  []plan.Edge // edges that end here, from top to bottom
}

// entry returns the y coordinate at which edge number i ends.
func (b box) entry(i int) int { return b.y + b.height*(i+1)/(len(b.in)+1) }

// layout places the containers like a staircase: each has its own row, below and to the right of all
// containers for which it waits. From each box a line goes down, and then right to the containers that wait
// for it. So no line crosses a box, and each edge has room for its label to the right of the box at which it
// ends.
func layout(p plan.Report) (boxes []box, width, height int) {
	y := heading + margin
	place := map[string]int{}
	for i, c := range p.Order() {
		b := box{Container: c, text: boxText(p, c), x: margin + i*stairs, y: y, height: boxHeight}
		place[c.Name] = i
		for _, e := range p.Essential() {
			if _, ok := place[e.From]; ok && e.To == c.Name { // a dependency that has no place is optional and absent
				b.in = append(b.in, e)
			}
		}
		// The edge from the nearest container ends lowest. So its line is the shortest, and crosses no other.
		slices.SortStableFunc(b.in, func(x, y plan.Edge) int { return place[x.From] - place[y.From] })
		b.height = max(b.height, lineGap*(len(b.in)+1))
		b.width = 24 + int(max(letterName*letters(c.Name), letterText*letters(b.text)))
		y += b.height + gapY
		boxes = append(boxes, b)
		right := b.x + b.width
		for _, e := range b.in {
			right = max(right, b.x+b.width+10+int(letterText*letters(edgeWords(e))))
		}
		width = max(width, right+margin)
	}
	return boxes, width, y - gapY + margin
}

func letters(s string) float64 { return float64(utf8.RuneCountInString(s)) }

func boxText(p plan.Report, c startup.Container) string {
	kind, _, _ := strings.Cut(p.Describe(c), ",")
	words := []string{kind}
	expected := slices.Contains(p.Expected, c.Name)
	if expected {
		words = nil
	}
	if c.Health != startup.NoHealth {
		words = append(words, "healthy by "+string(c.Health))
	}
	if expected {
		words = append(words, "added by injection")
	}
	return strings.Join(words, ", ")
}

// edgeWords returns the label of an edge, which is shown at the container that waits.
func edgeWords(e plan.Edge) string {
	s := "after " + e.From + " is " + string(e.After)
	switch {
	case e.By == "":
		return s + ", kept by nothing"
	case !e.Present:
		return s + ", by " + string(e.By) + " (to be written)"
	}
	return s + ", by " + string(e.By)
}

// planSVG draws the plans below one another.
func planSVG(plans []plan.Report) string {
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

// svgPlan draws one plan, starting at y, and returns its size.
func svgPlan(b *strings.Builder, p plan.Report, y int) (width, height int) {
	boxes, width, height := layout(p)
	title := p.Object.String() + ", Kubernetes " + p.Kubernetes
	fmt.Fprintf(b, `<g transform="translate(0 %d)">`+"\n", y)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="16" font-weight="600" fill="#1f2328">%s</text>`+"\n", margin, heading, chart.Escape(title))
	byName := map[string]box{}
	for _, to := range boxes {
		byName[to.Name] = to
		for i, e := range to.in {
			svgEdge(b, e, byName[e.From], to, to.entry(i))
		}
	}
	for _, at := range boxes {
		svgBox(b, p, at)
	}
	b.WriteString("</g>\n")
	return max(width, 2*margin+int(10*letters(title))), height
}

func svgBox(b *strings.Builder, p plan.Report, at box) {
	fill, dash := "#f6f8fa", ""
	if slices.Contains(p.Expected, at.Name) {
		fill, dash = "#ffffff", ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(b, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="7" fill="%s" stroke="#57606a"%s/>`,
		chart.Escape(at.Name+": "+p.Describe(at.Container)), at.x, at.y, at.width, at.height, fill, dash)
	middle := at.y + at.height/2
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="600" fill="#1f2328">%s</text>`, at.x+12, middle-4, chart.Escape(at.Name))
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="11" fill="#57606a">%s</text></g>`+"\n", at.x+12, middle+13, chart.Escape(at.text))
}

// svgEdge draws an edge: a line goes down from the first box, and then right to the second box at height y. The label
// is to the right of the second box.
func svgEdge(b *strings.Builder, e plan.Edge, from, to box, y int) {
	colour, dash := colours[e.By].svg, ""
	if !e.Present {
		dash = ` stroke-dasharray="6 4"`
	}
	x := from.x + trunk
	fmt.Fprintf(b, `<g><title>%s</title><path d="M%d %dV%dq0 6 6 6H%d" fill="none" stroke="%s" stroke-width="1.6"%s/>`,
		chart.Escape(e.String()), x, from.y+from.height, y-6, to.x-7, colour, dash)
	fmt.Fprintf(b, `<path d="M%d %dl-8 -4.5v9z" fill="%s"/>`, to.x, y, colour)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="11" fill="%s">%s</text></g>`+"\n", to.x+to.width+10, y+4, colour, chart.Escape(edgeWords(e)))
}
