package chart

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"outrider.dev/internal/base/cli/visible"
)

// TextOptions are the options of a chart for a terminal. The zero value of a field means its default.
type TextOptions struct {
	Width int // width of the whole text in columns; default 100
	Color bool
}

// A look is the appearance of a phase or a mark.
type look struct {
	cell  rune
	ansi  string // an SGR code
	class string // CSS class in SVG
	means string
}

var phases = map[Phase]look{
	Pulling:  {'░', "36", "pulling", "pulling the image"},
	Waiting:  {'·', "33", "waiting", "waiting for dependencies"},
	Running:  {'▒', "34", "running", "running, not healthy"},
	Alive:    {'▓', "34", "alive", "running"},
	Healthy:  {'█', "32", "healthy", "healthy"},
	Stopping: {'▄', "35", "stopping", "stopping"},
	BackOff:  {'~', "31", "backoff", "in back-off"},
}

var marks = map[MarkKind]look{
	Crashed:    {'x', "31;1", "bad", "crashed"},
	NoImage:    {'p', "31;1", "bad", "its image could not be pulled"},
	Completed:  {'o', "32;1", "good", "completed"},
	Refused:    {'?', "33;1", "warn", "its call was refused"},
	CallFailed: {'?', "33;1", "warn", "its call failed"},
	Ready:      {'r', "32;1", "good", "ready"},
	Line:       {'l', "36", "info", "a line of its log"},
	HookFailed: {'h', "31;1", "bad", "a hook failed"},
	Notified:   {'n', "36;1", "info", "notified of a restart"},
	TooEarly:   {'!', "31;1", "bad", "broke the plan"},
	Deleted:    {'D', "35;1", "pod", "deleted"},
	Sandbox:    {'S', "31;1", "bad", "a new sandbox"},
	Address:    {'A', "36", "info", "its IP is in the API"},
}

// Phases and marks in the order of the legend. If two marks fall into one cell, the later one of this list is drawn
// there.
var (
	phaseOrder = []Phase{Pulling, Waiting, Running, Alive, Healthy, Stopping, BackOff}
	markOrder  = []MarkKind{Line, Address, Notified, Ready, NoImage, Completed, HookFailed, Crashed, CallFailed, Refused, Sandbox, Deleted, TooEarly}
)

// isBackOff reports whether an IsWaiting event means that the kubelet delays the start, and not that a gate is
// closed: package kubelet writes the cause into the event's detail.
func isBackOff(detail string) bool { return strings.HasPrefix(detail, "back-off") }

// Text returns the chart for a terminal.
func (c Chart) Text(o TextOptions) string {
	d := c.drawing(o)
	var b strings.Builder
	if c.Title != "" {
		fmt.Fprintln(&b, c.Title)
	}
	fmt.Fprintf(&b, "%s %s\n", strings.Repeat(" ", d.margin), d.axis())
	for _, l := range c.Lanes {
		fmt.Fprintf(&b, "%-*s %s\n", d.margin, l.Name, d.row(l.Spans, l.Marks))
	}
	if len(c.Pod) > 0 {
		fmt.Fprintf(&b, "%-*s %s\n", d.margin, podLane, d.row(nil, c.Pod))
	}
	b.WriteString(d.legend(c))
	for _, n := range c.Notes {
		fmt.Fprintf(&b, "! %s\n", n)
	}
	return b.String()
}

// A drawing holds a chart and the widths of its parts, in columns.
type drawing struct {
	chart  Chart
	end    time.Duration
	margin int // width of the names
	width  int // width of the lanes
	total  int
	color  bool
}

func (c Chart) drawing(o TextOptions) drawing {
	if o.Width <= 0 {
		o.Width = 100
	}
	d := drawing{chart: c, end: max(c.End, time.Millisecond), color: o.Color, margin: len(podLane), total: o.Width}
	for _, l := range c.Lanes {
		d.margin = max(d.margin, utf8.RuneCountInString(l.Name))
	}
	d.width = max(o.Width-d.margin-1, 20)
	return d
}

// column returns the index of the cell that shows a time.
func (d drawing) column(t time.Duration) int {
	return min(max(int(float64(t)/float64(d.end)*float64(d.width)), 0), d.width-1)
}

// row draws the spans, each at least one cell wide, and the marks over them.
func (d drawing) row(spans []Span, ms []Mark) string {
	cells := make([]look, d.width)
	for _, s := range spans {
		to := max(d.column(s.To), d.column(s.From)+1)
		if s.To >= d.end {
			to = d.width
		}
		for i := d.column(s.From); i < to; i++ {
			cells[i] = phases[s.Phase]
		}
	}
	taken := map[int]MarkKind{}
	for _, kind := range slices.Backward(markOrder) {
		for _, m := range ms {
			if at := d.free(taken, d.column(m.At), kind); m.Kind == kind && at >= 0 {
				cells[at], taken[at] = marks[kind], kind
			}
		}
	}
	return d.paint(cells)
}

// free returns the index of the cell for a mark. This is the wanted cell or, if a mark of another kind occupies it, a
// free neighbour. The index is -1 if no cell is free, or if a mark of the same kind is found first.
func (d drawing) free(taken map[int]MarkKind, at int, kind MarkKind) int {
	for _, at := range []int{at, at + 1, at + 2, at - 1} {
		switch k, ok := taken[at]; {
		case at < 0 || at >= d.width:
		case !ok:
			return at
		case k == kind:
			return -1
		}
	}
	return -1
}

func (d drawing) paint(cells []look) string {
	var b strings.Builder
	for _, c := range cells {
		switch {
		case c.cell == 0:
			b.WriteByte(' ')
		case d.color:
			b.WriteString(visible.Paint(c.ansi, string(c.cell)))
		default:
			b.WriteRune(c.cell)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// axis returns the line with the labels of the axis. It contains as many round times as fit.
func (d drawing) axis() string {
	step := d.chart.step(d.end, max(d.width/10, 1))
	line := []rune(strings.Repeat(" ", d.width))
	for t := time.Duration(0); t < d.end; t += step {
		if t == 0 && d.chart.Steps {
			continue // events are numbered from 1
		}
		label := []rune(d.chart.label(t))
		if at := d.column(t); at+len(label) <= d.width {
			copy(line[at:], label)
		}
	}
	return strings.TrimRight(string(line), " ")
}

// step returns the time between two labels of an axis with at most n labels.
func (c Chart) step(end time.Duration, n int) time.Duration {
	step := roundStep(end, n)
	if c.Steps {
		return max(step, time.Second)
	}
	return step
}

// roundStep returns the smallest round step with which an axis up to end needs at most n labels. Below a minute, it
// is 1, 2 or 5 times a power of ten milliseconds; above, whole minutes.
func roundStep(end time.Duration, n int) time.Duration {
	for scale := time.Millisecond; ; scale *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			step := k * scale
			if step >= time.Minute {
				step = (step + time.Minute - 1).Truncate(time.Minute)
			}
			if end/step <= time.Duration(n) {
				return step
			}
		}
	}
}

// legend explains only the looks that the chart uses.
func (d drawing) legend(c Chart) string {
	var parts []string
	width := 0
	var b strings.Builder
	for _, l := range c.used() {
		part := d.paint([]look{l}) + " " + l.means
		cost := utf8.RuneCountInString(l.means) + 5
		if width+cost > d.total && len(parts) > 0 {
			b.WriteString(strings.Join(parts, "   ") + "\n")
			parts, width = nil, 0
		}
		parts, width = append(parts, part), width+cost
	}
	return b.String() + strings.Join(parts, "   ") + "\n"
}

// used returns the looks of the chart's phases and marks, in the order of the legend.
func (c Chart) used() (out []look) {
	has := map[string]bool{}
	for _, l := range append([]Lane{{Marks: c.Pod}}, c.Lanes...) {
		for _, s := range l.Spans {
			has[string(s.Phase)] = true
		}
		for _, m := range l.Marks {
			has[string(m.Kind)] = true
		}
	}
	for _, p := range phaseOrder {
		if has[string(p)] {
			out = append(out, phases[p])
		}
	}
	for _, k := range markOrder {
		if has[string(k)] {
			out = append(out, marks[k])
		}
	}
	return out
}

// Badge returns the letter of a mark, the class of its colour, and its meaning.
func (k MarkKind) Badge() (letter, class, means string) {
	l := marks[k]
	return string(l.cell), l.class, l.means
}
