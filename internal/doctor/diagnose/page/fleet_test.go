package page

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/diagnose/result"
)

// Pods that are not ready come first, then the slowest ones, and the causes are counted.
func TestFleetText(t *testing.T) {
	started := func(pod string, state result.StartState, took time.Duration, cause string) result.Report {
		r := result.Report{Pod: pod, Verdict: result.Nothing, Start: &result.Start{State: state, Took: result.Elapsed{Time: took}, Phases: []result.Phase{
			{Name: result.ImagePhase, From: time.Second, Took: result.Elapsed{Time: 12 * time.Second}}}}}
		if cause != "" {
			r.Verdict, r.Findings = result.Found, []result.Finding{{Code: "startup-race"}}
		}
		return r
	}
	restarted := started("shop/restarted", result.StartReady, 90*time.Second, "startup-race")
	restarted.Start.AtMost = true
	var b bytes.Buffer
	err := Write(&b, []result.Report{
		{Pod: "shop/job", Verdict: result.Nothing, Start: &result.Start{State: result.StartEnded}}, {Pod: "shop/old", Verdict: result.Undecided},
		started("shop/quick", result.StartReady, 2500*time.Millisecond, ""), restarted, started("shop/ill", result.StartNotReady, 26*time.Hour, "startup-race"),
		started("shop/\x1b[2Jbad", result.StartNotReady, 3*time.Minute, ""),
	}, Options{Format: "text", Fleet: true, Columns: 70})
	if err != nil {
		t.Fatal(err)
	}
	want := `6 pods, 2 not ready, 2 ready, 1 unknown, 1 ended

     3  nothing wrong
     2  startup-race             an application made a call before its proxy was ready
     1  undecided

UNTIL READY           POD              CAUSE          PHASES
not ready, 1 d 2 h    shop/ill         startup-race   image 12 s
not ready, 3 min 0 s  shop/\x1b[2Jbad  nothing wrong  image 12 s
at most 90 s          shop/restarted   startup-race   image 12 s
2.5 s                 shop/quick       nothing wrong  image 12 s
unknown               shop/old         undecided
ended                 shop/job         nothing wrong
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	b.Reset()
	if err := FleetText(&b, Made(20), 50); err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(b.String(), "UNTIL")
	for line := range strings.Lines(rows) {
		if len([]rune(line)) > 51 {
			t.Errorf("wider than the terminal: %q", line)
		}
	}
}

// A fleet's page has a limited number of small rows, and says how much it leaves out.
func TestFleetIsBounded(t *testing.T) {
	page := fleetOf(t, Made(mostRows+500)...)
	if n := strings.Count(page, "<li data-c="); n != mostRows {
		t.Errorf("%d rows, want %d", n, mostRows)
	}
	if !strings.Contains(page, "500 more pods are not shown") {
		t.Error("the page does not say what it leaves out")
	}
	if each := len(page) / mostRows; each > 1500 {
		t.Errorf("%d bytes a row", each)
	}
}

// If one pod took hours, the axis is still made for the other pods, and the bar of that pod ends at the edge.
func TestFleetAxis(t *testing.T) {
	all := Made(100)
	all[1].Start.Took.Time = 5 * time.Hour
	all[1].Start.Phases[6].Took.Time = 5 * time.Hour
	f := newFleet(all)
	if end := f.axis(); end > 2*time.Minute {
		t.Errorf("the axis ends at %s", end)
	}
	for _, r := range all {
		at := 0.0
		for _, b := range rowOf(r, f.axis()).bars {
			x, wide := number(t, b.x), number(t, b.wide)
			if x < at-0.02 || x+wide > 100.02 {
				t.Errorf("%s: a bar from %v, %v wide, after %v", r.Pod, x, wide, at)
			}
			at = x + wide
		}
	}
}

// A fleet cannot be formatted as SVG.
func TestFormatsOfAFleet(t *testing.T) {
	for _, format := range Formats {
		want := format == "svg"
		if got := (Options{Format: format, Fleet: true}).Check(); (got != nil) != want {
			t.Errorf("%s: %v", format, got)
		}
		if err := Write(&bytes.Buffer{}, Made(3), Options{Format: format}); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}
