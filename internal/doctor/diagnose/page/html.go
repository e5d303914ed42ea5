package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/diagnose"
)

//go:embed page.html
var markup string

//go:embed page.css
var sheet string

//go:embed page.js
var script string

var templates = template.Must(template.New("page").Parse(markup))

// palette contains the colours of every chart and those of the page itself.
var palette = append(slices.Clone(chart.Palette), chart.Colour{Name: "page", Light: "#f6f8fa", Dark: "#0d1117"}, chart.Colour{Name: "gate", Light: "#bf3989", Dark: "#f778ba"})

// fills names the colours of bars whose colour is named differently from the phase.
var fills = map[diagnose.PhaseName]string{
	diagnose.SchedulePhase: "faint", diagnose.SandboxPhase: "pod", diagnose.ImagePhase: "pulling", diagnose.InitPhase: "running",
	diagnose.ProxyPhase: "warn", diagnose.GatePhase: "gate", diagnose.AppPhase: "healthy",
}

// styles returns the page's style sheet: the palette, for light and dark, and the rules that use it.
func styles() string {
	out := ":root {"
	for _, c := range palette {
		out += fmt.Sprintf(" --%s: light-dark(%s, %s);", c.Name, c.Light, c.Dark)
	}
	out += " }\n"
	for _, name := range []string{"alive", "running", "healthy"} {
		out += fmt.Sprintf(".bar.%[1]s { fill: var(--%[1]s) } ", name)
	}
	for _, p := range diagnose.PhaseNames {
		out += fmt.Sprintf(".bar.%s { fill: var(--%s) } ", p, fills[p])
	}
	return out + "\n" + sheet
}

// A shell holds the parts that every page has.
type shell struct {
	Title  string
	Style  template.CSS
	Script template.JS
	Policy string
}

func newShell(title string) shell {
	style := styles()
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return shell{title, template.CSS(style), template.JS(script), fmt.Sprintf(
		"default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'", hash(style), hash(script))}
}

// These are the parts of a page. [shown] makes text in them harmless, and the template escapes it.
type (
	podsPage struct {
		shell
		End    int64 // end of the axis in ms
		Ticks  []tick
		Legend []badge
		Pods   []podPart
		Left   string
	}
	badge   struct{ Letter, Class, Means string }
	tick    struct{ X, At, Text string }
	podPart struct {
		Name, Class, Sentence, Zero, Timeline, Decide, Count string
		Lanes                                                []lanePart
		Lines                                                []linePart
		Findings                                             []findingPart
		Lists                                                []listPart
	}
	lanePart struct {
		Name, Label string
		Bars        []barPart
		Marks       []markPart
	}
	barPart struct {
		Class, X, Wide string
		From, To       int64
		Y, High        int
	}
	markPart struct {
		Letter, Class, X string
		At               int64
	}
	linePart struct {
		When, Container, Text, From string
		At                          int64
		Placed, Against             bool
	}
	findingPart struct {
		Code, Confidence, Sentence, Disproof, Remedy, Tried, Command, Patch string
		Quotes                                                              []linePart
	}
	listPart struct {
		Title string
		Lines []string
	}
)

// HTML writes one self-contained page with the timelines and findings of pods, those with findings first. Its
// content security policy forbids every request, and all scripts and styles except its own.
func HTML(w io.Writer, reports []diagnose.Report) error {
	all := slices.Clone(reports)
	slices.SortStableFunc(all, func(a, b diagnose.Report) int {
		rank := map[diagnose.Verdict]int{diagnose.Found: 0, diagnose.Undecided: 1, diagnose.Nothing: 2}
		return rank[a.Verdict] - rank[b.Verdict]
	})
	title := fmt.Sprintf("What happened to %d pods", len(all))
	if len(all) == 1 {
		title = "What happened to " + shown(all[0].Pod, longestName)
	}
	p := podsPage{shell: newShell(title)}
	if more := len(all) - mostPods; more > 0 {
		p.Left = fmt.Sprintf("%d more pods are not shown, of which those with findings come first: select fewer, or use --all", more)
		all = all[:mostPods]
	}
	var end time.Duration
	for _, r := range all {
		end = max(end, picture(r).End)
	}
	p.End, p.Ticks = end.Milliseconds(), ticks(end)
	kinds, room := map[chart.MarkKind]bool{}, mostLines
	for _, r := range all {
		p.Pods = append(p.Pods, podOf(r, end, kinds, &room))
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		letter, class, means := k.Badge()
		p.Legend = append(p.Legend, badge{letter, class, means})
	}
	return templates.ExecuteTemplate(w, "pods", p)
}

// shown makes foreign text harmless and cuts it to a maximal length.
func shown(text string, most int) string { return visible.Plain(cut(text, most)) }

func percent(part, whole time.Duration) string {
	return strconv.FormatFloat(100*float64(part)/float64(max(whole, 1)), 'f', 2, 64)
}

// ticks returns some round times on an axis.
func ticks(end time.Duration) (out []tick) {
	step := time.Millisecond
	for _, f := range []time.Duration{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000} {
		if step = f * time.Millisecond; end/step <= 6 {
			break
		}
	}
	for end/step > 6 {
		step *= 2
	}
	for t := time.Duration(0); t <= end-step/2; t += step {
		out = append(out, tick{percent(t, end), strconv.FormatInt(t.Milliseconds(), 10), strconv.FormatFloat(t.Seconds(), 'f', -1, 64) + " s"})
	}
	return out
}

func podOf(r diagnose.Report, end time.Duration, kinds map[chart.MarkKind]bool, room *int) podPart {
	zero, c := firstMoment(r), picture(r)
	p := podPart{Name: shown(r.Pod, longestName), Sentence: shown(r.Sentence, longestLine), Timeline: visible.Plain(timeline(r)), Decide: shown(r.Decide, longestLine), Class: "bad"}
	if r.Verdict == diagnose.Nothing {
		p.Class = "good"
	}
	if !zero.IsZero() {
		p.Zero = zero.UTC().Format("2006-01-02 15:04:05Z")
		for i, l := range c.Lanes {
			if l.Spans == nil && l.Marks == nil {
				continue
			}
			p.Lanes = append(p.Lanes, laneOf(l, r.Tracks[i], c.End, end, kinds))
		}
	}
	left := 0
	for _, t := range r.Tracks {
		left += t.LeftOut
		for _, m := range t.Marks {
			if *room == 0 {
				left++
				continue
			}
			*room--
			p.Lines = append(p.Lines, linePart{When: diagnose.Instant(m.At), Container: shown(t.Container, longestName), Text: shown(m.Text, longestLine), From: sourceOf(m.Quote), At: after(m.At.At, zero).Milliseconds()})
		}
	}
	slices.SortStableFunc(p.Lines, func(a, b linePart) int { return int(min(max(a.At-b.At, -1), 1)) })
	p.Count = fmt.Sprintf("log lines: %d", len(p.Lines))
	if left > 0 {
		p.Count += fmt.Sprintf(", and %d more that are not shown", left)
	}
	for _, f := range r.Findings {
		part := findingPart{Code: shown(string(f.Code), longestName), Confidence: shown(string(f.Confidence), longestName), Sentence: shown(f.Sentence, longestLine), Disproof: shown(f.Disproof, longestLine),
			Remedy: shown(f.Remedy.Sentence, longestLine), Tried: shown(f.Tried(), longestLine), Command: shown(f.Remedy.Command, longestLine), Patch: shown(f.Patch, 20*longestLine)}
		for _, q := range f.Evidence {
			part.Quotes = append(part.Quotes, quoteOf(q, zero, false))
		}
		for _, q := range f.Against {
			part.Quotes = append(part.Quotes, quoteOf(q, zero, true))
		}
		p.Findings = append(p.Findings, part)
	}
	for _, l := range []listPart{{"What is missing", r.Missing}, {"What contradicts itself, or is limited", r.Notes}} {
		if len(l.Lines) > 0 {
			part := listPart{Title: l.Title}
			for _, text := range l.Lines {
				part.Lines = append(part.Lines, shown(text, longestLine))
			}
			p.Lists = append(p.Lists, part)
		}
	}
	return p
}

func sourceOf(q diagnose.Quote) string {
	if q.Source.File == "" {
		return ""
	}
	return "(" + shown(q.Source.String(), longestLine) + ")"
}

func quoteOf(q diagnose.Quote, zero time.Time, against bool) linePart {
	l := linePart{Text: shown(q.Text, longestLine), From: sourceOf(q), Against: against}
	if q.At.Known() {
		l.When, l.At = diagnose.Instant(q.At), after(q.At.At, zero).Milliseconds()
		l.Placed = !zero.IsZero() && l.At >= 0
	}
	return l
}

// laneOf scales a lane to the axis that all pods share. Bars differ in height too: that of a container that is not
// ready has half the height.
func laneOf(l chart.Lane, t diagnose.Track, own, end time.Duration, kinds map[chart.MarkKind]bool) lanePart {
	out := lanePart{Name: l.Name, Label: fmt.Sprintf("%s, %s: %d runs, %d marks", l.Name, t.Role, len(t.Runs), len(l.Marks))}
	for _, s := range l.Spans {
		b := barPart{Class: string(s.Phase), From: s.From.Milliseconds(), To: s.To.Milliseconds(), Y: 6, High: 16}
		if s.To == own { // a span that is still open lasts to the end of the axis
			s.To, b.To = end, end.Milliseconds()
		}
		if s.Phase == chart.Running {
			b.Y, b.High = 10, 8
		}
		b.X, b.Wide = percent(s.From, end), percent(max(s.To-s.From, end/300), end)
		out.Bars = append(out.Bars, b)
	}
	for _, m := range l.Marks {
		kinds[m.Kind] = true
		letter, class, _ := m.Kind.Badge()
		out.Marks = append(out.Marks, markPart{letter, class, percent(m.At, end), m.At.Milliseconds()})
	}
	return out
}
