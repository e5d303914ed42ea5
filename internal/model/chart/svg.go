package chart

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"outrider.dev/internal/visible"
)

// Measures of the picture, in pixels.
const (
	lanesWide  = 880
	laneHigh   = 28
	barHigh    = 16
	letterWide = 7.2
	pad        = 16
	titleHigh  = 30 // if there is a title
	axisHigh   = 26
	legendHigh = 20
	badgeWide  = 15
)

// Colours of what is no span and no mark.
const (
	ink   = "#1f2328"
	faint = "#59636e"
	grid  = "#e4e8ec"
	alarm = "#cf222e"
)

// SVG is the chart as one picture, which needs nothing else. What stands behind a
// span or a mark is shown when the pointer rests on it.
func (c Chart) SVG() string { return SVG([]Chart{c}) }

// SVG is the charts as one picture, one below the other.
func SVG(charts []Chart) string {
	wide, high := 0.0, 0.0
	var body strings.Builder
	for _, c := range charts {
		p := c.picture()
		fmt.Fprintf(&body, `<g transform="translate(0 %.0f)">`+"\n", high)
		p.draw(&body)
		body.WriteString("</g>\n")
		wide, high = max(wide, p.wide), high+p.high
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" font-family="system-ui, sans-serif" font-size="12">`+"\n"+
		"<title>%s</title>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n%s</svg>\n", wide, high, wide, high, markup(names(charts)), body.String())
}

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

// A picture is a chart's measures.
type picture struct {
	chart      Chart
	end        time.Duration
	lanes      []Lane
	top        float64 // where the lanes begin
	left       float64 // and from the left
	legendAt   float64
	rows       [][]look // of the legend
	notesAt    float64
	wide, high float64
}

func (c Chart) picture() picture {
	p := picture{chart: c, end: max(c.End, time.Millisecond), lanes: slices.Clone(c.Lanes), top: pad + axisHigh}
	if c.Title != "" {
		p.top += titleHigh
	}
	if len(c.Pod) > 0 {
		p.lanes = append(p.lanes, Lane{Name: "(pod)", Marks: c.Pod})
	}
	letters := 0
	for _, l := range p.lanes {
		letters = max(letters, utf8.RuneCountInString(l.Name))
	}
	p.left = pad + 12 + letterWide*float64(letters)
	p.wide = p.left + lanesWide + 2*pad
	p.rows = legendRows(c.used(), p.wide-2*pad)
	p.legendAt = p.bottom() + 28
	p.notesAt = p.legendAt + float64(len(p.rows)*legendHigh) + 4
	p.high = p.notesAt + float64(len(c.Notes)*legendHigh)
	return p
}

// bottom is where the lanes end.
func (p picture) bottom() float64 { return p.top + float64(len(p.lanes)*laneHigh) }

// x is where a time is.
func (p picture) x(t time.Duration) float64 {
	return p.left + lanesWide*min(max(float64(t)/float64(p.end), 0), 1)
}

func (p picture) draw(b *strings.Builder) {
	if p.chart.Title != "" {
		fmt.Fprintf(b, `<text x="%d" y="%d" font-size="16" font-weight="600" fill="%s">%s</text>`+"\n", pad, pad+14, ink, markup(p.chart.Title))
	}
	p.axis(b)
	for i, l := range p.lanes {
		p.lane(b, l, p.top+float64(i*laneHigh))
	}
	p.legend(b)
	for i, n := range p.chart.Notes {
		fmt.Fprintf(b, `<text x="%d" y="%.0f" fill="%s" font-weight="600">! %s</text>`+"\n", pad, p.notesAt+float64(i*legendHigh), alarm, markup(n))
	}
}

func (p picture) axis(b *strings.Builder) {
	step := p.chart.step(11)
	for t := time.Duration(0); t <= p.end; t += step {
		if t == 0 && p.chart.Steps {
			continue // the first event is number 1
		}
		fmt.Fprintf(b, `<path d="M%.1f %.0fV%.0f" stroke="%s"/><text x="%.1f" y="%.0f" text-anchor="middle" font-size="11" fill="%s">%s</text>`+"\n",
			p.x(t), p.top-6, p.bottom(), grid, p.x(t), p.top-11, faint, p.chart.label(t))
	}
}

func (p picture) lane(b *strings.Builder, l Lane, y float64) {
	middle := y + laneHigh/2
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", p.left-10, middle+4, ink, markup(l.Name))
	fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="%s"/>`+"\n", p.left, middle, p.left+lanesWide, grid)
	for _, s := range l.Spans {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="2" fill="%s"><title>%s</title></rect>`+"\n",
			p.x(s.From), middle-barHigh/2, max(p.x(s.To)-p.x(s.From), 1), barHigh, phases[s.Phase].fill, markup(p.chart.sentence(l.Name, s)))
	}
	p.marks(b, l.Marks, middle)
}

// marks draws each with a letter in a circle: it is not told by its colour alone.
// Where there is no room for one, the mark that is there says it too.
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
		fmt.Fprintf(b, `<g><title>%s</title>`, markup(strings.Join(d.says, "\n")))
		badge(b, d.x, y, marks[d.kind])
		b.WriteString("</g>\n")
	}
}

// A drawnMark stands for one mark or for several.
type drawnMark struct {
	kind MarkKind
	x    float64
	says []string
}

// place puts a mark where it belongs, or beside it, or into one that is there.
func (p picture) place(drawn []drawnMark, m Mark) []drawnMark {
	says := fmt.Sprintf("%s at %s", marks[m.Kind].means, p.chart.label(m.At))
	if m.Detail != "" {
		says += ": " + m.Detail
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
		drawn[same].says = append(drawn[same].says, says)
	case near(x) < 0:
		drawn = append(drawn, drawnMark{m.Kind, x, []string{says}})
	case near(x+badgeWide+1) < 0:
		drawn = append(drawn, drawnMark{m.Kind, x + badgeWide + 1, []string{says}})
	default:
		drawn[near(x)].says = append(drawn[near(x)].says, says)
	}
	return drawn
}

func badge(b *strings.Builder, x, y float64, l look) {
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="7" fill="#fff" stroke="%s" stroke-width="1.5"/><text x="%.1f" y="%.1f" text-anchor="middle" font-size="10" font-weight="bold" fill="%s">%c</text>`,
		x, y, l.fill, x, y+3.5, l.fill, l.cell)
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

// legendRows are the looks in rows of that width.
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

// wide is the room that the legend needs for it.
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
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="14" height="12" rx="2" fill="%s"/>`, x, y-10, l.fill)
			}
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x+20, y, faint, l.means)
			x += l.wide()
		}
	}
}

// markup is text in SVG and HTML.
func markup(text string) string { return html.EscapeString(visible.Plain(text)) }
