package chart

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/startup"
)

const sec = time.Second

// everything returns a chart that contains every element which a chart can have.
func everything(t *testing.T) Chart {
	t.Helper()
	timeline := startup.Timeline{
		{What: startup.HasAddress, At: sec},
		{Container: "app", What: startup.IsStarted},
		{Container: "app", What: startup.IsRefused, At: 2 * sec, Detail: "by <proxy>"},
		{Container: "app", What: startup.HasFailed, At: 3 * sec, Detail: "exit code 1"},
		{Container: "app", What: startup.IsWaiting, At: 4 * sec, Detail: "back-off after a crash, 6s"},
		{Container: "app", What: startup.IsWaiting, At: 10 * sec, Detail: "until proxy is healthy"},
		{Container: "proxy", What: startup.IsStarted, At: 9 * sec},
		{Container: "proxy", What: startup.HookFailed, At: 11 * sec},
		{Container: "proxy", What: startup.IsHealthy, At: 14 * sec},
		{Container: "app", What: startup.IsStarted, At: 14 * sec, Incarnation: 1},
		{Container: "app", What: startup.IsHealthy, At: 15 * sec, Incarnation: 1},
		{Container: "app", What: startup.IsNotified, At: 17 * sec, Incarnation: 1},
		{What: startup.PodDeleted, At: 20 * sec},
		{Container: "app", What: startup.IsStopping, At: 20 * sec, Incarnation: 1},
		{Container: "app", What: startup.IsCompleted, At: 22 * sec, Incarnation: 1},
		{What: startup.NewSandbox, At: 24 * sec},
	}
	plan, err := startup.Parse("app after proxy is healthy")
	if err != nil {
		t.Fatal(err)
	}
	c := New([]string{"app", "proxy"}, timeline, []Pull{{"proxy", 0, 4 * sec, true}, {"proxy", 5 * sec, 9 * sec, false}}, startup.Check(plan, timeline))
	c.Title = "everything & more"
	return c
}

func TestText(t *testing.T) {
	want := `everything & more
      0s             5s              10s            15s             20s            25s
app   !▒▒▒▒▒?▒▒x  ~~~~~~~~~~~~~~~~~~~············▒▒▒██████n█████████▄▄▄▄▄▄o
proxy ░░░░░░░░░░░░p  ░░░░░░░░░░░░░▒▒▒▒▒▒h▒▒▒▒▒▒▒▒█████████████████████████████████████████
(pod)    A                                                          D           S
░ pulling the image   · waiting for dependencies   ▒ running, not healthy   █ healthy
▄ stopping   ~ in back-off   A its IP is in the API   n notified of a restart
p its image could not be pulled   o completed   h a hook failed   x crashed
? its call was refused   S a new sandbox   D deleted   ! broke the plan
! at 0s app ran before proxy was healthy, by 14s
`
	if diff := cmp.Diff(want, everything(t).Text(TextOptions{Width: 90})); diff != "" {
		t.Errorf("Text (-want +got):\n%s", diff)
	}
}

// In the chart of a counterexample, the axis shows the numbers of events, because many events happen at one instant.
func TestStepsCountEvents(t *testing.T) {
	plan, err := startup.Parse("app after proxy is healthy\nweb after proxy is started, on restart notify")
	if err != nil {
		t.Fatal(err)
	}
	timeline := startup.Timeline{
		{Container: "app", What: startup.IsStarted},
		{Container: "proxy", What: startup.IsStarted},
		{Container: "proxy", What: startup.IsHealthy},
		{Container: "web", What: startup.IsStarted},
		{Container: "proxy", What: startup.HasFailed, At: sec},
		{Container: "proxy", What: startup.IsStarted, At: sec, Incarnation: 1},
		{What: startup.PodDeleted, At: sec},
		{Container: "proxy", What: startup.HasFailed, At: 2 * sec, Incarnation: 1},
	}
	violations := append(startup.Check(plan, timeline), startup.Violation{Edge: plan.Edges[1], How: startup.RestartNotPropagated, At: sec, By: startup.Forever})
	want := `                1         2          3         4          5         6          7         8
app             !▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒!▒▒▒▒▒▒▒▒▒▒
proxy                     ▒▒▒▒▒▒▒▒▒▒▒█████████████████████x         ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒x
web                                            ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒!▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒!▒▒▒▒▒▒▒▒▒▒
(pod)                                                                          D
▒ running, not healthy   █ healthy   x crashed   D deleted   ! broke the plan
! at 0s app ran before proxy was healthy
! at 2s proxy ended while app still ran
! at 2s proxy ended while web still ran
! at 1s proxy restarted and web did not follow
`
	got := Steps([]string{"app", "proxy", "web"}, timeline, violations).Text(TextOptions{Width: 100})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Text (-want +got):\n%s", diff)
	}
}

// Marks that would cover one another are drawn beside each other or as one, and all their texts are kept.
func TestMarksOfAPictureDoNotCoverOneAnother(t *testing.T) {
	at := func(d time.Duration, kinds ...MarkKind) (out []Mark) {
		for _, k := range kinds {
			out = append(out, Mark{Kind: k, At: d})
		}
		return out
	}
	tests := map[string]struct {
		marks   []Mark
		circles int
	}{
		"far apart":                      {append(at(0, Refused), at(10*sec, Refused)...), 2},
		"the same twice, at one instant": {at(0, Refused, Refused), 1},
		"two kinds at one instant":       {at(0, Refused, Crashed), 2},
		"three kinds at one instant":     {at(0, Refused, Crashed, TooEarly), 2},
		"at the end of the lane":         {at(20*sec, Completed, Crashed), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Chart{End: 20 * sec, Lanes: []Lane{{Name: "app", Marks: tt.marks}}}
			svg := c.SVG()
			lane, _, _ := strings.Cut(svg[strings.Index(svg, ">app<"):], "<rect")
			if n := strings.Count(lane, "<g><title>"); n != tt.circles {
				t.Errorf("%d circles, want %d\n%s", n, tt.circles, lane)
			}
			for _, m := range tt.marks {
				if !strings.Contains(lane, marks[m.Kind].means) {
					t.Errorf("%q is missing\n%s", marks[m.Kind].means, lane)
				}
			}
		})
	}
}

func TestColourChangesNothingElse(t *testing.T) {
	c := everything(t)
	coloured := c.Text(TextOptions{Color: true})
	plain := regexp.MustCompile(visible.Colour("[0-9;]*")).ReplaceAllString(coloured, "")
	if diff := cmp.Diff(c.Text(TextOptions{}), plain); diff != "" || plain == coloured {
		t.Errorf("without its colours (-plain +stripped):\n%s", diff)
	}
}

func TestNarrowAndEmptyChartsAreDrawn(t *testing.T) {
	for name, c := range map[string]Chart{
		"nothing":         {},
		"nothing ran":     New([]string{"app"}, nil, nil, nil),
		"an hour":         New([]string{"app"}, startup.Timeline{{Container: "app", What: startup.IsStarted, At: time.Hour}}, nil, nil),
		"a thousand days": New([]string{"app"}, startup.Timeline{{Container: "app", What: startup.IsStarted, At: 24000 * time.Hour}}, nil, nil),
	} {
		for _, width := range []int{1, 20, 500} {
			if text := c.Text(TextOptions{Width: width}); len(text) > 5000 {
				t.Errorf("%s, %d columns: %d bytes", name, width, len(text))
			}
		}
		if n := strings.Count(c.SVG(), `text-anchor="middle"`); n > 20 {
			t.Errorf("%s: %d lines in the axis", name, n)
		}
	}
}

func TestSVGIsWellFormedAndSelfContained(t *testing.T) {
	svg := everything(t).SVG()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	for _, want := range []string{"everything &amp; more", "by &lt;proxy&gt;", "pulling the image", "stopping", "ran before proxy was healthy"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not contain %q", want)
		}
	}
	page := Page{Title: "a <title>", Sections: []Section{{Chart: everything(t), From: "<file>", Lines: []string{"<line>"}, Verdict: "<verdict>",
		Timeline: startup.Timeline{{Container: "<app>", What: startup.IsStarted}}}}}.HTML()
	for _, outside := range []string{"<script", "src=", "href=", "<title>a <title>", "<td><app>", "<file>", "<line>", "<verdict>", "@import"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %q in it", outside)
		}
	}
}

func TestAChartIsReadBackFromJSON(t *testing.T) {
	want := everything(t)
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Chart
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Chart{})); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// The charts of a page share an axis: the same time has the same position in each.
func TestChartsOfAPageShareAnAxis(t *testing.T) {
	long := everything(t)
	short := New([]string{"a-longer-name"}, startup.Timeline{{Container: "a-longer-name", What: startup.IsStarted, At: 2 * sec}}, nil, nil)
	all := aligned([]Chart{long, short})
	a, b := all[0].picture(), all[1].picture()
	if a.x(2*sec) != b.x(2*sec) || a.end != b.end || short.picture().end == b.end {
		t.Errorf("2s is at %v and %v", a.x(2*sec), b.x(2*sec))
	}
	steps := Steps([]string{"app"}, startup.Timeline{{Container: "app", What: startup.IsStarted}}, nil)
	if got := aligned([]Chart{long, steps})[1].picture().end; got != steps.End {
		t.Errorf("an axis of events ends at %v, want its own %v", got, steps.End)
	}
}

// Bars differ by their patterns, and only the bar of a healthy container has none.
func TestBarsDifferWithoutColour(t *testing.T) {
	seen := map[string]bool{}
	for phase, l := range phases {
		if seen[l.class] || !strings.Contains(style, ".chart .bar."+l.class+" {") {
			t.Errorf("%s has no colour of its own: %q", phase, l.class)
		}
		seen[l.class] = true
		if has := strings.Contains(patterns, `id="p-`+l.class+`"`); has != (phase != Healthy) {
			t.Errorf("%s: has a pattern: %v", phase, has)
		}
	}
}
