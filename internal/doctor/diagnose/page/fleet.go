package page

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/diagnose/result"
)

// A fleet contains the reports of many pods: first the pods that are not ready, then the ready ones, and in each
// group the slowest first.
type fleet struct {
	reports []result.Report
	causes  []cause
}

// A cause groups the pods with the same finding.
type cause struct {
	Code, Title string
	Count       int
}

const (
	noCause   = "nothing wrong"
	undecided = "undecided"
	starting  = "starting"
)

// Cause returns the code of a report's first finding, "undecided", "starting", or "nothing wrong".
func Cause(r result.Report) string {
	switch {
	case r.Verdict == result.Found && len(r.Findings) > 0:
		return string(r.Findings[0].Code)
	case r.Verdict == result.Undecided:
		return undecided
	}
	return map[bool]string{true: starting, false: noCause}[r.Verdict == result.Starting]
}

func newFleet(reports []result.Report) fleet {
	f := fleet{reports: slices.Clone(reports)}
	rank := map[result.StartState]int{result.StartNotReady: 0, result.StartReady: 1, result.StartUnknown: 2, result.StartEnded: 3}
	slices.SortStableFunc(f.reports, func(a, b result.Report) int {
		x, y := startOf(a), startOf(b)
		return cmp.Or(rank[x.State]-rank[y.State], cmp.Compare(y.Took.Time, x.Took.Time), strings.Compare(a.Pod, b.Pod))
	})
	counts := map[string]int{}
	for _, r := range reports {
		counts[Cause(r)]++
	}
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		c := cause{code, "", counts[code]}
		if k, err := kinds.Of(code); err == nil {
			c.Title = k.Title
		}
		f.causes = append(f.causes, c)
	}
	slices.SortStableFunc(f.causes, func(a, b cause) int { return b.Count - a.Count })
	return f
}

func startOf(r result.Report) result.Start {
	if r.Start == nil {
		return result.Start{State: result.StartUnknown}
	}
	return *r.Start
}

// summary counts the pods by state.
func (f fleet) summary() string {
	counts := map[result.StartState]int{}
	for _, r := range f.reports {
		counts[startOf(r).State]++
	}
	out := fmt.Sprintf("%d pods", len(f.reports))
	for _, s := range []result.StartState{result.StartNotReady, result.StartReady, result.StartUnknown, result.StartEnded} {
		if counts[s] > 0 {
			out += fmt.Sprintf(", %d %s", counts[s], s)
		}
	}
	return out
}

// Took formats the time until a pod was ready, or its state if there is no such time.
func Took(s result.Start) string {
	text := ""
	if s.Took.Known() {
		text = duration(s.Took.Time)
	}
	switch {
	case s.State == result.StartReady && text == "":
		return "ready"
	case s.State == result.StartReady && s.AtMost:
		return "at most " + text
	case s.State == result.StartReady:
		return text
	case s.State == result.StartNotReady && text != "":
		return "not ready, " + text
	}
	return string(s.State)
}

func duration(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// phasesText describes the phases of a start.
func phasesText(s result.Start) string {
	var out []string
	for _, p := range s.Phases {
		out = append(out, fmt.Sprintf("%s %s", p.Name, duration(p.Took.Time)))
	}
	return strings.Join(out, ", ")
}

// FleetText writes the codes with their counts, the causes, and then a line for each pod: pods that are not ready first,
// then the slowest.
func FleetText(w io.Writer, reports []result.Report, columns int) error {
	f := newFleet(reports)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", f.summary())
	for _, c := range f.causes {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%6d  %-24s %s", c.Count, c.Code, c.Title), " ") + "\n")
	}
	t := texter{width: cmp.Or(columns, 100)}
	t.groups(reports)
	if t.b.Len() > 0 {
		b.WriteString("\n" + strings.TrimSuffix(t.b.String(), "\n"))
	}
	rows := [][]string{{"UNTIL READY", "POD", "CAUSE", "PHASES"}}
	for _, r := range f.reports[:min(len(f.reports), mostRows)] {
		s := startOf(r)
		rows = append(rows, []string{Took(s), cut(oneLine(r.Pod), longestName), Cause(r), phasesText(s)})
	}
	wide := make([]int, 3)
	for _, row := range rows {
		for i := range wide {
			wide[i] = max(wide[i], len([]rune(row[i])))
		}
	}
	b.WriteByte('\n')
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if line += cell; i < len(wide) {
				line += strings.Repeat(" ", wide[i]-len([]rune(cell))+2)
			}
		}
		b.WriteString(strings.TrimRight(narrow(line, columns), " ") + "\n")
	}
	if more := len(f.reports) - mostRows; more > 0 {
		fmt.Fprintf(&b, moreRows+"\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const moreRows = "%d more pods are not shown: they are counted above, and were ready before the last one here, or have ended"

// narrow cuts a row at the width of the terminal; columns 0 means no limit.
func narrow(line string, columns int) string {
	if all := []rune(line); columns > 0 && len(all) > columns {
		return string(all[:columns-1]) + "…"
	}
	return line
}

// A row shows one pod on the page of a fleet.
type row struct {
	name, class, took, cause, sentence, label string
	bars                                      []bar
}

// A bar is a phase of a start: its left end and its width in percent of the axis.
type bar struct {
	phase   result.PhaseName
	x, wide string
}

// FleetHTML writes a page with one row for each pod.
func FleetHTML(w io.Writer, reports []result.Report) error {
	f := newFleet(reports)
	end := f.axis()
	d := newDocument(fmt.Sprintf("How %d pods started", len(f.reports)))
	d.put("<p>%s</p>\n<div class=\"tools\" role=\"group\" aria-label=\"Show only\">\n", f.summary())
	for _, c := range f.causes {
		d.put(`<button type="button" class="cause" aria-pressed="false" data-cause="%[1]s" title="%[2]s">%[1]s <b>%[3]s</b></button>`+"\n", c.Code, c.Title, c.Count)
	}
	d.put(`<label>name <input id="name" type="search" autocomplete="off"></label>
<output id="shown"></output>
</div>
<ul class="legend">`)
	for _, p := range result.PhaseNames {
		d.legend(string(p), "2", "12", p)
	}
	d.put("<li>empty: not known</li></ul>\n<main>\n")
	d.groups(reports)
	d.put(`<ol class="fleet">
<li class="head"><span>pod</span><span>until ready</span>`)
	d.axis(end)
	d.put("<span>cause</span></li>\n")
	for _, r := range f.reports[:min(len(f.reports), mostRows)] {
		d.row(rowOf(r, end))
	}
	d.put("</ol>\n")
	if more := len(f.reports) - mostRows; more > 0 {
		d.left(moreRows, more)
	}
	return d.end(w)
}

func (d *document) row(r row) {
	d.put(`<li data-c="%s"><span class="name">%s</span><span class="%s">%s</span>`, r.cause, r.name, r.class, r.took)
	if len(r.bars) > 0 {
		d.put(`<svg class="lane" role="img" aria-label="%s"><rect class="ground" width="100%%" height="16"/>`, r.label)
		for _, b := range r.bars {
			d.put(`<rect class="bar %s" x="%s%%" width="%s%%" height="16"/>`, b.phase, b.x, b.wide)
		}
		d.put("</svg>")
	} else {
		d.put(`<span class="faint">phases not known</span>`)
	}
	d.put(`<span class="%s">%s</span>`, r.class, r.cause)
	d.putIf(`<span class="sentence faint">%s</span>`, r.sentence)
	d.put("</li>\n")
}

// axis returns the end of the axis. Up to 5 % of the pods may exceed it: if a few pods took hours, the phases of the
// other pods must still be visible.
func (f fleet) axis() time.Duration {
	var all []time.Duration
	for _, r := range f.reports {
		s, last := startOf(r), time.Duration(0)
		for _, p := range s.Phases {
			last = max(last, p.From+p.Took.Time)
		}
		if s.State == result.StartReady && !s.AtMost {
			last = max(last, s.Took.Time)
		}
		if last > 0 {
			all = append(all, last)
		}
	}
	if len(all) == 0 {
		return time.Second
	}
	slices.Sort(all)
	usual := all[(len(all)-1)*95/100]
	return max(min(all[len(all)-1], usual+usual/2), time.Second)
}

func rowOf(r result.Report, end time.Duration) row {
	s := startOf(r)
	out := row{name: cut(r.Pod, longestName), took: Took(s), cause: Cause(r), label: phasesText(s), class: "bad"}
	if r.Verdict != result.Nothing {
		out.sentence = cut(r.Sentence, 200)
	} else if s.State != result.StartNotReady {
		out.class = "good"
	}
	for i, p := range s.Phases {
		to := p.From + p.Took.Time
		if i+1 < len(s.Phases) {
			to = min(to, s.Phases[i+1].From)
		}
		if to = min(to, end); to > p.From {
			out.bars = append(out.bars, bar{p.Name, percent(p.From, end), percent(to-p.From, end)})
		}
	}
	return out
}
