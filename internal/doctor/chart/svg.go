package chart

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"outrider.dev/internal/base/cli/visible"
)

// Measures of the picture, in pixels.
const (
	lanesWide  = 720
	laneHigh   = 28
	barHigh    = 16
	letterWide = 7.2
	pad        = 16
	titleHigh  = 30 // only if the picture has a title
	axisHigh   = 26
	legendHigh = 20
	badgeWide  = 15
)

// A Colour of the palette has one value for light pages and one for dark pages.
type Colour struct{ Name, Light, Dark string }

// Palette lists all colours. The contrast to the background is at least 3:1 for each bar, and at least 4.5:1 for
// each text. Each bar also has a pattern, except the bar of a healthy container, so that readers can tell the bars
// apart without colours.
var Palette = []Colour{
	{"ground", "#fff", "#161b22"}, {"ink", "#1f2328", "#e6edf3"}, {"faint", "#59636e", "#9198a1"}, {"grid", "#d8dee4", "#3d444d"},
	{"bad", "#cf222e", "#ff7b72"}, {"good", "#1a7f37", "#3fb950"}, {"warn", "#bc4c00", "#f0883e"}, {"info", "#0550ae", "#79c0ff"}, {"pod", "#6639ba", "#d2a8ff"},
	{"pulling", "#0969da", "#58a6ff"}, {"waiting", "#9a6700", "#d29922"}, {"running", "#0e7490", "#39c5cf"}, {"alive", "#0550ae", "#79c0ff"},
	{"healthy", "#1a7f37", "#3fb950"}, {"stopping", "#8250df", "#a371f7"}, {"backoff", "#cf222e", "#ff7b72"},
}

var style = func() string {
	var light, dark, bars, inks strings.Builder
	for _, c := range Palette {
		fmt.Fprintf(&light, "--%s: %s; ", c.Name, c.Light)
		fmt.Fprintf(&dark, "--%s: %s; ", c.Name, c.Dark)
	}
	for _, p := range phaseOrder {
		fmt.Fprintf(&bars, ".chart .bar.%[1]s { fill: var(--%[1]s) } ", phases[p].class)
	}
	for _, c := range []string{"bad", "good", "warn", "info", "pod"} {
		fmt.Fprintf(&inks, ".chart text.%[1]s { fill: var(--%[1]s) } .chart circle.%[1]s { stroke: var(--%[1]s) } ", c)
	}
	return "<style>\n.chart { " + light.String() + "}\n@media (prefers-color-scheme: dark) { .chart { " + dark.String() + "} }\n" +
		`.chart .ground { fill: var(--ground) } .chart text { fill: var(--ink) } .chart .faint { fill: var(--faint) } .chart .grid { stroke: var(--grid) }
.chart .badge { fill: var(--ground); stroke-width: 1.5 } .chart pattern path { stroke: var(--ground); stroke-width: 2; fill: none } .chart pattern circle { fill: var(--ground) }
` + bars.String() + "\n" + inks.String() + "\n</style>\n"
}()

// patterns are drawn over the bars.
const patterns = `<defs>
<pattern id="p-pulling" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M1 0V6"/></pattern>
<pattern id="p-waiting" width="6" height="6" patternUnits="userSpaceOnUse"><circle cx="3" cy="3" r="1.4"/></pattern>
<pattern id="p-running" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M-2 10L10 -2"/></pattern>
<pattern id="p-alive" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M-2 -2L10 10"/></pattern>
<pattern id="p-stopping" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 3H6"/></pattern>
<pattern id="p-backoff" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M0 6L4 2L8 6"/></pattern>
</defs>
`

// SVG returns the chart as one self-contained picture. Resting the pointer on a span or a mark shows its details.
func (c Chart) SVG() string { return SVG([]Chart{c}) }

// SVG returns the charts as one picture, one below the other, on a shared axis.
func SVG(charts []Chart) string {
	wide, high := 0.0, 0.0
	var body strings.Builder
	for _, c := range aligned(charts) {
		p := c.picture()
		fmt.Fprintf(&body, `<g transform="translate(0 %.0f)">`+"\n", high)
		p.draw(&body)
		body.WriteString("</g>\n")
		wide, high = max(wide, p.wide), high+p.high
	}
	return fmt.Sprintf(`<svg class="chart" xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" font-family="system-ui, sans-serif" font-size="12">`+"\n"+
		"<title>%s</title>\n%s%s%s"+`<rect class="ground" width="100%%" height="100%%"/>`+"\n%s</svg>\n", wide, high, wide, high, Escape(names(charts)), described(charts), style, patterns, body.String())
}

// described returns the text that a screen reader reads for the picture.
func described(charts []Chart) string {
	var out []string
	for _, c := range charts {
		if c.Description != "" {
			out = append(out, c.Description)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "<desc>" + Escape(strings.Join(out, "\n")) + "</desc>\n"
}

// aligned gives the charts one axis and one margin, so that readers can compare their bars. Charts whose axis shows
// event numbers share an axis only with each other.
func aligned(charts []Chart) []Chart {
	ends := map[bool]time.Duration{}
	letters := 0
	for _, c := range charts {
		ends[c.Steps] = max(ends[c.Steps], c.End, c.axis)
		letters = max(letters, c.letters, c.longestName())
	}
	out := slices.Clone(charts)
	for i, c := range out {
		out[i].axis, out[i].letters = ends[c.Steps], letters
	}
	return out
}

func (c Chart) longestName() int {
	n := 0
	if len(c.Pod) > 0 {
		n = len(podLane)
	}
	for _, l := range c.Lanes {
		n = max(n, utf8.RuneCountInString(l.Name))
	}
	return n
}

// podLane names the lane that shows the events of the pod itself.
const podLane = "(pod)"

func names(charts []Chart) string {
	var out []string
	for _, c := range charts {
		if c.Title != "" {
			out = append(out, c.Title)
		}
	}
	if len(out) == 0 {
		return "start-up of a pod"
	}
	return strings.Join(out, ", ")
}

// A picture holds a chart and the positions of its parts, in pixels.
type picture struct {
	chart      Chart
	end        time.Duration
	lanes      []Lane
	top        float64 // y coordinate of the first lane
	left       float64 // x coordinate at which the lanes begin
	legendAt   float64
	rows       [][]look // rows of the legend
	notesAt    float64
	wide, high float64
}

func (c Chart) picture() picture {
	p := picture{chart: c, end: max(c.End, c.axis, time.Millisecond), lanes: slices.Clone(c.Lanes), top: pad + axisHigh}
	if c.Title != "" {
		p.top += titleHigh
	}
	if len(c.Pod) > 0 {
		p.lanes = append(p.lanes, Lane{Name: podLane, Marks: c.Pod})
	}
	p.left = pad + 12 + letterWide*float64(max(c.letters, c.longestName()))
	p.wide = max(p.left+lanesWide+2*pad, 2*pad+10*letterCount(c.Title))
	for _, n := range c.Notes {
		p.wide = max(p.wide, 2*pad+letterWide*letterCount("! "+n))
	}
	p.rows = legendRows(c.used(), p.wide-2*pad)
	p.legendAt = p.bottom() + 28
	p.notesAt = p.legendAt + float64(len(p.rows)*legendHigh) + 4
	p.high = p.notesAt + float64(len(c.Notes)*legendHigh)
	return p
}

func letterCount(s string) float64 { return float64(utf8.RuneCountInString(s)) }

// bottom returns the y coordinate where the lanes end.
func (p picture) bottom() float64 { return p.top + float64(len(p.lanes)*laneHigh) }

// x returns the x coordinate of a time.
func (p picture) x(t time.Duration) float64 {
	return p.left + lanesWide*min(max(float64(t)/float64(p.end), 0), 1)
}

func (p picture) draw(b *strings.Builder) {
	if p.chart.Title != "" {
		fmt.Fprintf(b, `<text x="%d" y="%d" font-size="16" font-weight="600">%s</text>`+"\n", pad, pad+14, Escape(p.chart.Title))
	}
	p.axis(b)
	for i, l := range p.lanes {
		p.lane(b, l, p.top+float64(i*laneHigh))
	}
	p.legend(b)
	for i, n := range p.chart.Notes {
		fmt.Fprintf(b, `<text class="bad" x="%d" y="%.0f" font-weight="600">! %s</text>`+"\n", pad, p.notesAt+float64(i*legendHigh), Escape(n))
	}
}

func (p picture) axis(b *strings.Builder) {
	step := p.chart.step(p.end, 9)
	for t := time.Duration(0); t <= p.end; t += step {
		if t == 0 && p.chart.Steps {
			continue // events are numbered from 1
		}
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %.0fV%.0f"/><text class="faint" x="%.1f" y="%.0f" text-anchor="middle" font-size="11">%s</text>`+"\n",
			p.x(t), p.top-6, p.bottom(), p.x(t), p.top-11, p.chart.label(t))
	}
}

func (p picture) lane(b *strings.Builder, l Lane, y float64) {
	middle := y + laneHigh/2
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", p.left-10, middle+4, Escape(l.Name))
	fmt.Fprintf(b, `<path class="grid" d="M%.1f %.1fH%.1f"/>`+"\n", p.left, middle, p.left+lanesWide)
	for _, s := range l.Spans {
		bar(b, p.x(s.From), middle-barHigh/2, max(p.x(s.To)-p.x(s.From), 1), barHigh, phases[s.Phase], p.chart.sentence(l.Name, s))
	}
	p.marks(b, l.Marks, middle)
}

// marks draws each mark as a letter in a circle, because colour must not be the only difference. Where there is no
// room for another circle, the mark's text is added to the title of the circle that is already there.
func (p picture) marks(b *strings.Builder, all []Mark, y float64) {
	var drawn []drawnMark
	for _, kind := range slices.Backward(markOrder) {
		for _, m := range all {
			if m.Kind == kind {
				drawn = p.place(drawn, m)
			}
		}
	}
	for _, d := range drawn {
		fmt.Fprintf(b, `<g><title>%s</title>`, Escape(strings.Join(d.labels, "\n")))
		badge(b, d.x, y, marks[d.kind])
		b.WriteString("</g>\n")
	}
}

// A drawnMark is a circle that shows one mark or several.
type drawnMark struct {
	kind   MarkKind
	x      float64
	labels []string
}

// place adds a mark to the drawn circles: as a circle at its time or to the right of that, or as part of a circle
// that is already drawn.
func (p picture) place(drawn []drawnMark, m Mark) []drawnMark {
	label := fmt.Sprintf("%s at %s", marks[m.Kind].means, p.chart.label(m.At))
	if m.Detail != "" {
		label += ": " + m.Detail
	}
	near := func(x float64, kinds ...MarkKind) int {
		return slices.IndexFunc(drawn, func(d drawnMark) bool {
			return x-d.x < badgeWide && d.x-x < badgeWide && (len(kinds) == 0 || slices.Contains(kinds, d.kind))
		})
	}
	x := p.x(m.At)
	same := near(x, m.Kind)
	switch {
	case same >= 0:
		drawn[same].labels = append(drawn[same].labels, label)
	case near(x) < 0:
		drawn = append(drawn, drawnMark{m.Kind, x, []string{label}})
	case near(x+badgeWide+1) < 0:
		drawn = append(drawn, drawnMark{m.Kind, x + badgeWide + 1, []string{label}})
	default:
		drawn[near(x)].labels = append(drawn[near(x)].labels, label)
	}
	return drawn
}

func badge(b *strings.Builder, x, y float64, l look) {
	fmt.Fprintf(b, `<circle class="badge %s" cx="%.1f" cy="%.1f" r="7"/><text class="%s" x="%.1f" y="%.1f" text-anchor="middle" font-size="10" font-weight="bold">%c</text>`,
		l.class, x, y, l.class, x, y+3.5, l.cell)
}

// bar draws a colour with a pattern over it; its title appears while the pointer rests on it.
func bar(b *strings.Builder, x, y, wide, high float64, l look, title string) {
	b.WriteString("<g>")
	if title != "" {
		fmt.Fprintf(b, "<title>%s</title>", Escape(title))
	}
	fmt.Fprintf(b, `<rect class="bar %s" x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="2"/>`, l.class, x, y, wide, high)
	if l.class != phases[Healthy].class {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="2" fill="url(#p-%s)"/>`, x, y, wide, high, l.class)
	}
	b.WriteString("</g>\n")
}

func (c Chart) sentence(name string, s Span) string {
	text := fmt.Sprintf("%s: %s, %s to %s", name, phases[s.Phase].means, c.label(s.From), c.label(s.To))
	if !c.Steps {
		text += fmt.Sprintf(" (%s)", (s.To - s.From).Round(time.Millisecond))
	}
	if s.Detail != "" {
		text += ": " + s.Detail
	}
	return text
}

// legendRows distributes the legend's entries over rows of the given width.
func legendRows(used []look, wide float64) [][]look {
	var rows [][]look
	left := 0.0
	for _, l := range used {
		if left -= l.wide(); left < 0 {
			rows, left = append(rows, nil), wide-l.wide()
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], l)
	}
	return rows
}

// wide returns the width of the look's entry in the legend.
func (l look) wide() float64 { return 44 + letterWide*float64(len(l.means)) }

func (p picture) legend(b *strings.Builder) {
	isMark := map[rune]bool{}
	for _, m := range marks {
		isMark[m.cell] = true
	}
	for i, row := range p.rows {
		x, y := float64(pad), p.legendAt+float64(i*legendHigh)
		for _, l := range row {
			if isMark[l.cell] {
				badge(b, x+7, y-4, l)
			} else {
				bar(b, x, y-10, 16, 12, l, "")
			}
			fmt.Fprintf(b, `<text class="faint" x="%.1f" y="%.1f">%s</text>`+"\n", x+22, y, l.means)
			x += l.wide()
		}
	}
}

// Escape makes text safe for SVG and HTML.
func Escape(text string) string { return html.EscapeString(visible.Plain(text)) }
