package chart

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Measures of the picture, in pixels.
const (
	lanesWide  = 880
	laneHigh   = 26
	barHigh    = 16
	letterWide = 7.5
	topHigh    = 28
	legendHigh = 20
	legendRow  = 4 // entries
)

// SVG is the chart as one picture, which needs nothing else. What stands behind a
// span or a mark is shown when the pointer rests on it.
func (c Chart) SVG() string {
	p := c.picture()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" font-family="sans-serif" font-size="12">`+"\n",
		p.wide, p.high, p.wide, p.high)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", html.EscapeString(c.name()))
	p.axis(&b)
	for i, l := range p.lanes {
		p.lane(&b, l, topHigh+float64(i*laneHigh))
	}
	p.legend(&b, c.used())
	for i, n := range c.Notes {
		fmt.Fprintf(&b, `<text x="8" y="%.0f" fill="#cb181d">! %s</text>`+"\n", p.notesAt+float64(i*legendHigh), html.EscapeString(n))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c Chart) name() string {
	if c.Title != "" {
		return c.Title
	}
	return "start-up of a pod"
}

// A picture is a chart's measures.
type picture struct {
	end        time.Duration
	lanes      []Lane
	left       float64 // where the lanes begin
	wide, high float64
	legendAt   float64
	notesAt    float64
}

func (c Chart) picture() picture {
	p := picture{end: max(c.End, time.Millisecond), lanes: slices.Clone(c.Lanes)}
	if len(c.Pod) > 0 {
		p.lanes = append(p.lanes, Lane{Name: "(pod)", Marks: c.Pod})
	}
	letters := 0
	for _, l := range p.lanes {
		letters = max(letters, utf8.RuneCountInString(l.Name))
	}
	rows := (len(c.used()) + legendRow - 1) / legendRow
	p.left = 20 + letterWide*float64(letters)
	p.wide = p.left + lanesWide + 20
	p.legendAt = topHigh + float64(len(p.lanes)*laneHigh) + 20
	p.notesAt = p.legendAt + float64(rows*legendHigh) + 6
	p.high = p.notesAt + float64(len(c.Notes)*legendHigh)
	return p
}

// x is where a time is.
func (p picture) x(t time.Duration) float64 {
	return p.left + lanesWide*min(max(float64(t)/float64(p.end), 0), 1)
}

func (p picture) axis(b *strings.Builder) {
	step := roundStep(p.end, 12)
	bottom := topHigh + float64(len(p.lanes)*laneHigh)
	for t := time.Duration(0); t <= p.end; t += step {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%.0f" stroke="#ddd"/><text x="%.1f" y="16" text-anchor="middle" fill="#555">%s</text>`+"\n",
			p.x(t), p.x(t), topHigh-4, bottom, p.x(t), t)
	}
}

func (p picture) lane(b *strings.Builder, l Lane, y float64) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", p.left-8, y+barHigh-2, html.EscapeString(l.Name))
	for _, s := range l.Spans {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`+"\n",
			p.x(s.From), y+2, max(p.x(s.To)-p.x(s.From), 1), barHigh, phases[s.Phase].fill, html.EscapeString(s.sentence(l.Name)))
	}
	for _, kind := range markOrder {
		for _, m := range l.Marks {
			if m.Kind == kind {
				p.mark(b, m, y)
			}
		}
	}
}

// mark draws a letter in a circle: a mark is not told by its colour alone.
func (p picture) mark(b *strings.Builder, m Mark, y float64) {
	look := marks[m.Kind]
	title := fmt.Sprintf("%s at %s", look.means, m.At)
	if m.Detail != "" {
		title += ": " + m.Detail
	}
	fmt.Fprintf(b, `<g><title>%s</title>`, html.EscapeString(title))
	badge(b, p.x(m.At), y+2+barHigh/2, look)
	b.WriteString("</g>\n")
}

func badge(b *strings.Builder, x, y float64, l look) {
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="7" fill="#fff" stroke="%s" stroke-width="1.5"/><text x="%.1f" y="%.1f" text-anchor="middle" font-size="10" font-weight="bold" fill="%s">%c</text>`,
		x, y, l.fill, x, y+3.5, l.fill, l.cell)
}

func (s Span) sentence(name string) string {
	text := fmt.Sprintf("%s: %s, %s to %s (%s)", name, phases[s.Phase].means, s.From, s.To, s.To-s.From)
	if s.Detail != "" {
		text += ": " + s.Detail
	}
	return text
}

func (p picture) legend(b *strings.Builder, used []look) {
	isMark := map[rune]bool{}
	for _, m := range marks {
		isMark[m.cell] = true
	}
	for i, l := range used {
		x := p.left + float64(i%legendRow)*lanesWide/legendRow
		y := p.legendAt + float64(i/legendRow*legendHigh)
		if isMark[l.cell] {
			badge(b, x+7, y-4, l)
		} else {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="14" height="12" fill="%s"/>`, x, y-10, l.fill)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%s</text>`+"\n", x+20, y, l.means)
	}
}
