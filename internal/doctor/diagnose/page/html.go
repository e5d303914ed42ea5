package page

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

//go:embed page.css
var sheet string

//go:embed page.js
var script string

// palette contains the colours of charts and two more for the page.
var palette = append(slices.Clone(chart.Palette), chart.Colour{Name: "page", Light: "#f6f8fa", Dark: "#0d1117"}, chart.Colour{Name: "gate", Light: "#bf3989", Dark: "#f778ba"})

// fills maps the phases of a start to the names of their colours in palette.
var fills = map[result.PhaseName]string{
	result.SchedulePhase: "faint", result.SandboxPhase: "pod", result.ImagePhase: "pulling", result.InitPhase: "running",
	result.ProxyPhase: "warn", result.GatePhase: "gate", result.AppPhase: "healthy",
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
	for _, p := range result.PhaseNames {
		out += fmt.Sprintf(".bar.%s { fill: var(--%s) } ", p, fills[p])
	}
	return out + "\n" + sheet
}

// A document is a page that is being written.
type document struct{ strings.Builder }

// markup is a constant text with HTML. It is a separate type so that the compiler refuses to pass a string variable
// to [document.put] as markup: the variable could contain hostile text.
type markup string

// put writes markup, in which each %s stands for one of the values. Values may contain hostile text, such as lines of
// logs. put escapes them, so that they add no element, no attribute and no control character to the page.
func (d *document) put(text markup, values ...any) {
	for i, v := range values {
		values[i] = chart.Escape(fmt.Sprint(v))
	}
	fmt.Fprintf(d, string(text), values...)
}

// putIf writes markup with a value, unless the value is empty.
func (d *document) putIf(text markup, value string) {
	if value != "" {
		d.put(text, value)
	}
}

// newDocument begins a page.
func newDocument(title string) *document {
	d, style := &document{}, styles()
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	d.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>%s</title>
<style>`, hash(style), hash(script), title)
	d.WriteString(style)
	d.put(`</style>
</head>
<body>
<header><h1>%s</h1><button type="button" id="theme" aria-pressed="false">Dark page</button></header>

`, title)
	return d
}

// end completes the page and writes it.
func (d *document) end(w io.Writer) error {
	d.put("</main>\n<script>")
	d.WriteString(script)
	d.put("</script>\n</body>\n</html>\n")
	_, err := io.WriteString(w, d.String())
	return err
}

// axis writes the labels of a time axis.
func (d *document) axis(end time.Duration) {
	d.put(`<svg class="axis" aria-hidden="true">`)
	for _, t := range ticks(end) {
		d.put(`<text class="faint" x="%s%%" y="14" data-at="%s">%s s</text>`, percent(t, end), t.Milliseconds(), strconv.FormatFloat(t.Seconds(), 'f', -1, 64))
	}
	d.put("</svg>")
}

// legend writes an entry of a legend.
func (d *document) legend(class, y, high string, means any) {
	d.put(`<li>`+key+`<rect class="bar %s" y="%s" width="16" height="%s"/></svg>%s</li>`, class, y, high, means)
}

// key is the beginning of the small picture in an entry of the legend.
const key = `<svg class="key" aria-hidden="true"><rect class="ground" width="16" height="16"/>`

const zoom = `<div class="tools" role="toolbar" aria-label="Zoom of all timelines">
<button type="button" data-do="in" aria-label="zoom in">+</button>
<button type="button" data-do="out" aria-label="zoom out">−</button>
<button type="button" data-do="all">All</button>
<button type="button" data-do="left" aria-label="earlier">←</button>
<button type="button" data-do="right" aria-label="later">→</button>
<output id="window"></output>
</div>
<p class="faint">On a timeline: <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd> zoom, <kbd>←</kbd> <kbd>→</kbd> move the cursor (with <kbd>Shift</kbd> the window), <kbd>n</kbd> <kbd>p</kbd> go to the next and the previous mark, <kbd>Home</kbd> and <kbd>End</kbd> to the ends. Drag to move; turn the wheel on a chosen timeline, or with <kbd>Ctrl</kbd>, to zoom.</p>
<ul class="legend">
`

// HTML writes one self-contained page with the timelines and findings of pods. Pods with findings come first. The
// page's content security policy forbids every request, and all scripts and styles except the page's own.
func HTML(w io.Writer, reports []result.Report) error {
	all := slices.Clone(reports)
	slices.SortStableFunc(all, func(a, b result.Report) int {
		rank := map[result.Verdict]int{result.Found: 0, result.Undecided: 1, result.Starting: 2, result.Nothing: 3}
		return cmp.Or(cmp.Compare(min(len(a.SameAs), 1), min(len(b.SameAs), 1)), rank[a.Verdict]-rank[b.Verdict])
	})
	title := fmt.Sprintf("What happened to %d pods", len(all))
	if len(all) == 1 {
		title = "What happened to " + cut(all[0].Pod, longestName)
	}
	left := len(all) - mostPods
	all = all[:min(len(all), mostPods)]
	var end time.Duration
	kinds := map[chart.MarkKind]bool{}
	for _, r := range all {
		c := picture(r)
		end = max(end, c.End)
		for _, l := range c.Lanes {
			for _, m := range l.Marks {
				kinds[m.Kind] = true
			}
		}
	}
	d := newDocument(title)
	d.put(zoom)
	d.legend("alive", "2", "12", "runs")
	d.legend("running", "5", "6", "runs, not ready")
	d.legend("healthy", "2", "12", "ready")
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		letter, class, means := k.Badge()
		d.put("<li>"+key+`<circle class="%[1]s" cx="8" cy="8" r="7"/><text class="%[1]s" x="8" y="12">%[2]s</text></svg>%[3]s</li>`+"\n", class, letter, means)
	}
	d.put("</ul>\n<main data-end=\"%s\">\n", end.Milliseconds())
	d.groups(reports)
	room := mostLines
	for _, r := range all {
		d.pod(r, end, &room)
	}
	if left > 0 {
		d.left("%d more pods are not shown, of which those with findings come first: select fewer, or use --all", left)
	}
	return d.end(w)
}

// groups writes the causes, if there are several pods.
func (d *document) groups(reports []result.Report) {
	ill, _, more := byCause(reports)
	if len(reports) < 2 || !slices.ContainsFunc(ill, func(r result.Report) bool { return r.Group != nil }) {
		return
	}
	d.put("<section class=\"groups\">\n<h2>%s</h2>\n", several(reports))
	for _, r := range ill {
		d.put("<article>\n<h3 class=\"bad\">%s</h3>\n<p>%s</p>\n", cut(headline(r), longestLine), cut(does(r), 4*longestLine))
		d.group(r.Group)
		d.putIf("<pre tabindex=\"0\">%s</pre>\n", cut(command(r), longestLine))
		d.put("</article>\n")
	}
	if more > 0 {
		d.put("<p>%s</p>\n", fmt.Sprintf(moreCauses, more))
	}
	d.put("</section>\n")
}

// group writes the lines of a group.
func (d *document) group(g *result.Group) {
	for _, line := range facts(g) {
		d.put("<p>%s</p>\n", cut(line, longestLine))
	}
	if lines := changes(g); len(lines) > 0 {
		d.put("<p><b>%s</b></p>\n<ul>", changedBefore)
		for _, line := range lines {
			d.put("<li>%s</li>", cut(line, longestLine))
		}
		d.put("</ul>\n")
	}
}

// left writes how many pods the page does not show.
func (d *document) left(text string, n int) {
	d.put(`<p class="verdict bad">%s</p>`, fmt.Sprintf(text, n))
}

func percent(part, whole time.Duration) string {
	return strconv.FormatFloat(100*float64(part)/float64(max(whole, 1)), 'f', 2, 64)
}

// ticks returns about six round times for the labels of an axis.
func ticks(end time.Duration) (out []time.Duration) {
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
		out = append(out, t)
	}
	return out
}

// pod writes the section of a pod: its timeline and its log on the left, its findings on the right. It reduces room
// by the number of log lines that it writes.
func (d *document) pod(r result.Report, end time.Duration, room *int) {
	zero, class := firstMoment(r), "bad"
	if r.Verdict.Well() {
		class = "good"
	}
	name := cut(r.Pod, longestName)
	d.put(`<section class="pod">
<h2>%s</h2>
<p class="verdict %s">%s</p>
<div class="two">
<div>
`, name, class, cut(r.Sentence, longestLine))
	if r.Group != nil && len(r.Group.Members) == 1 {
		d.group(r.Group)
	}
	d.timeline(r, name, zero, end)
	d.putIf(`<details><summary>timeline as text</summary><pre tabindex="0">%s</pre></details>`+"\n", timeline(r))
	d.log(r, zero, room)
	d.put("</div>\n<div class=\"findings\">\n")
	for _, f := range r.Findings {
		d.finding(f, zero)
	}
	d.putIf(`<p><b>What would decide:</b></p><pre tabindex="0">%s</pre>`+"\n", cut(r.Decide, longestLine))
	d.list("Missing evidence", r.Missing)
	d.list("Contradictions and limits of the evidence", r.Notes)
	d.put("</div>\n</div>\n</section>\n")
}

// timeline draws the containers of a pod, one row for each.
func (d *document) timeline(r result.Report, name string, zero time.Time, end time.Duration) {
	var rows document
	if !zero.IsZero() {
		c := picture(r)
		for i, l := range c.Lanes {
			if l.Spans != nil || l.Marks != nil {
				rows.lane(l, r.Tracks[i], c.End, end)
			}
		}
	}
	if rows.Len() == 0 {
		d.put(`<p class="faint">The evidence has no times: there is no timeline.</p>` + "\n")
		return
	}
	since := zero.UTC().Format("2006-01-02 15:04:05Z")
	d.put(`<div class="chart" tabindex="0" role="group" aria-label="timeline of %s, from %[2]s on">
<div class="row"><span class="name faint">since %[2]s</span>`, name, since)
	d.axis(end)
	d.put("</div>\n")
	d.WriteString(rows.String())
	d.put(`</div>
<div class="now" aria-live="polite"><p class="faint">The log lines at the cursor are shown here.</p></div>
`)
}

// lane draws one container. The axis is the same for all pods, and its last time is end; own is the end of the pod's
// own chart. While a container is not ready, its bar has half the height, so that colour is not the only difference.
func (d *document) lane(l chart.Lane, t result.Track, own, end time.Duration) {
	d.put(`<div class="row"><span class="name">%s</span><svg class="lane" role="img" aria-label="%s"><rect class="ground" width="100%%" height="28"/><line class="grid" x2="100%%" y1="14" y2="14"/>
`, l.Name, fmt.Sprintf("%s, %s: %d runs, %d marks", l.Name, t.Role, len(t.Runs), len(l.Marks)))
	for _, s := range l.Spans {
		to, y, high := s.To, 6, 16
		if to == own { // a span that is still open lasts to the end of the axis
			to = end
		}
		if s.Phase == chart.Running {
			y, high = 10, 8
		}
		d.put(`<rect class="bar %s" x="%s%%" y="%s" width="%s%%" height="%s" data-a="%s" data-b="%s"/>`,
			s.Phase, percent(s.From, end), y, percent(max(to-s.From, end/300), end), high, s.From.Milliseconds(), to.Milliseconds())
	}
	d.put("\n")
	for _, m := range l.Marks {
		letter, class, _ := m.Kind.Badge()
		d.put(`<circle class="%[1]s" cx="%[2]s%%" cy="14" r="7" data-at="%[3]s"/><text class="%[1]s" x="%[2]s%%" y="18" data-at="%[3]s">%[4]s</text>`,
			class, percent(m.At, end), m.At.Milliseconds(), letter)
	}
	d.put("\n" + `<line class="cursor" y2="28"/></svg></div>` + "\n")
}

// log writes the log lines of all containers in the order of time, and the number of lines for which there is no
// room.
func (d *document) log(r result.Report, zero time.Time, room *int) {
	type line struct {
		at        time.Duration
		container string
		mark      result.Mark
	}
	var lines []line
	left := 0
	for _, t := range r.Tracks {
		fit := min(*room, len(t.Marks))
		left += t.LeftOut + len(t.Marks) - fit
		*room -= fit
		for _, m := range t.Marks[:fit] {
			lines = append(lines, line{after(m.At.At, zero).Truncate(time.Millisecond), t.Container, m})
		}
	}
	if len(lines) == 0 {
		return
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	d.put("<details><summary>log lines: %s", len(lines))
	if left > 0 {
		d.put(", and %s more that are not shown", left)
	}
	d.put("</summary><ol class=\"lines\">\n")
	for _, l := range lines {
		d.put(`<li data-at="%s"><span class="faint">%s %s</span> <code>%s</code>`, l.at.Milliseconds(), result.Instant(l.mark.At), cut(l.container, longestName), cut(l.mark.Text, longestLine))
		d.source(l.mark.Quote)
		d.put("</li>\n")
	}
	d.put("</ol></details>\n")
}

func (d *document) finding(f result.Finding, zero time.Time) {
	d.put("<article>\n<h3>%s <span class=\"faint\">(%s)</span></h3>\n<p>%s</p>\n<ul class=\"quotes\">",
		cut(string(f.Code), longestName), cut(string(f.Confidence), longestName), cut(f.Sentence, longestLine))
	for _, q := range f.Evidence {
		d.quote("", q, zero)
	}
	for _, q := range f.Against {
		d.quote("<b>Against it:</b> ", q, zero)
	}
	d.put("</ul>\n<p>It would be disproved by: %s</p>\n", cut(f.Disproof, longestLine))
	d.putIf("<p><b>What fixes it:</b> %s</p>\n", cut(f.Remedy.Sentence, 4*longestLine))
	d.putIf("<p>%s</p>\n", cut(f.Tried(), longestLine))
	d.putIf("<details><summary>patch.yaml</summary><pre tabindex=\"0\">%s</pre></details>\n", cut(f.Patch, 20*longestLine))
	d.putIf("<details><summary>What changes in the manifest</summary><pre tabindex=\"0\">%s</pre></details>\n", cut(f.Change, 20*longestLine))
	d.putIf("<pre tabindex=\"0\">%s</pre>\n", cut(f.Remedy.Command, longestLine))
	d.put("</article>\n")
}

// quote writes a line of the evidence. If its time is on the timeline, the time is a button.
func (d *document) quote(head markup, q evidence.Quote, zero time.Time) {
	d.put("<li>" + head)
	if q.At.Known() {
		if at := after(q.At.At, zero).Milliseconds(); !zero.IsZero() && at >= 0 {
			d.put(`<button type="button" class="at" data-at="%s">%s</button> `, at, result.Instant(q.At))
		} else {
			d.put(`<span class="faint">%s</span> `, result.Instant(q.At))
		}
	}
	d.put("<code>%s</code>", cut(q.Text, longestLine))
	d.source(q)
	d.put("</li>")
}

// source writes the file and line of a quote, if it is from a file.
func (d *document) source(q evidence.Quote) {
	if q.Source.File != "" {
		d.put(` <span class="faint from">(%s)</span>`, cut(q.Source.Place(), longestLine))
	}
}

// list writes a list that is collapsed at first, if it has lines.
func (d *document) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	d.put("<details><summary>%s</summary><ul>", title)
	for _, l := range lines {
		d.put("<li>%s</li>", cut(l, longestLine))
	}
	d.put("</ul></details>\n")
}
