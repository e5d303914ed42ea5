package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// logIn returns a log whose run began and ended at these seconds after 13:16:20 UTC.
func logIn(text string, began, ended int) *Log {
	start := time.Date(2026, 11, 24, 13, 16, 20, 0, time.UTC)
	at := func(s int) Time { return Second(start.Add(time.Duration(s)*time.Second), NodeClock) }
	l := &Log{Source: Source{Kind: FromLog, File: "app.log"}}
	l.open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	l.tail = func(most int) ([]byte, error) { return []byte(text[max(len(text)-most, 0):]), nil }
	l.window(&Run{Started: at(began), Finished: at(ended)}, Time{})
	return l
}

// placedLogIn returns the same log after its zone was determined, and the pod that contains it.
func placedLogIn(t *testing.T, text string, began, ended int) (*Log, *Pod) {
	t.Helper()
	l := logIn(text, began, ended)
	p := &Pod{Containers: []*Container{{Name: "app", Logs: []*Log{l}, Runs: []Run{{Started: Time{At: l.from, Error: time.Second, Clock: NodeClock}, Finished: Time{At: l.to.Add(-time.Second), Error: time.Second, Clock: NodeClock}}}}}}
	p.place(t.Context())
	return l, p
}

func TestTimesOfLines(t *testing.T) {
	const k = "2026-11-24T13:16:21.000000000Z "
	for name, tt := range map[string]struct{ log, want string }{
		"a zone that one offset explains":                                  {"2026-11-24 21:16:22,900 x\n\tat y\n2026-11-24 21:16:23,100 z", "1 13:16:22.9 ±1ms node; 2 13:16:22.9 ±1ms node +; 3 13:16:23.1 ±1ms node"},
		"a log without a date, over midnight":                              {"23:59:59.900 x\n00:00:00.100 y", "1 13:29:59.9 ±1ms node; 2 13:30:00.1 ±1ms node"},
		"klog, which has no year":                                          {"I1124 13:16:22.900000 1 x] y\nI1124 13:16:23.100000 1 x] y", "1 13:16:22.9 ±1µs node; 2 13:16:23.1 ±1µs node"},
		"a zone that the lines name":                                       {"2026-11-24T21:16:22.9+08:00 x", "1 13:16:22.9 ±100ms node"},
		"a zone by the runtime's times":                                    {k + "21:16:20.999 x\n" + k + "\tat y", "1 13:16:20.999 ±1ms node; 2 13:16:20.999 ±1ms node +"},
		"a line that was written later than the one it seems to belong to": {k + "21:16:20.999 x\n" + "2026-11-24T13:16:22.500000000Z Traceback\n" + k + "21:16:20.999 z\n2026-11-24T13:16:21.200000000Z   at y", "1 13:16:20.999 ±1ms node; 2 13:16:22.5 ±1ns node +; 3 13:16:20.999 ±1ms node; 4 13:16:20.999 ±1ms node +"},
		"a zone, and no date":                                              {"21:16:22.950+0800 x\n21:16:23.5+0800 y", "1 13:16:22.95 ±1ms node; 2 13:16:23.5 ±100ms node"},
		"the runtime's times where no others are":                          {k + "listening", "1 13:16:21 ±1ns node"},
		"no time at all":                                                   {"listening\n    at y", "1 unknown; 2 unknown +"},
		"a log of another run":                                             {"2026-11-24 13:46:40 x\n2026-11-24 13:46:50 x\n2026-11-24 15:00:00 y", "1 13:46:40 ±1s log app.log; 2 13:46:50 ±1s log app.log; 3 15:00:00 ±1s log app.log"},
		"a banner with a build's date, and times since the start": {"[     0.001000s]  INFO x: release 2 by y on 2025-09-01T22:31:18Z\n[     1.700000s]  INFO x: ready",
			"1 13:16:21.001 ±2s node; 2 13:16:22.7 ±2s node"},
		"the runtime's times are more exact":         {k + "[     1.700000s]  INFO x", "1 13:16:21 ±1ns node"},
		"a banner with a build's date, and no times": {"app 1 (built 2025-09-01T22:31:18Z)\nlistening", "1 unknown; 2 unknown"},
		"two programs with two zones":                {"2026-11-24 21:16:22 x\n24/Nov/2026 13:16:22 y\n2026-11-24 21:16:23 x", "1 13:16:22 ±1s node; 2 13:16:22 ±1s node; 3 13:16:23 ±1s node"},
		"a time in a line that is not its time":      {"2026-11-24T13:16:22Z x\n2020-01-01T00:00:00Z is when it expired", "1 13:16:22 ±1s node; 2 00:00:00 ±1s node"},
	} {
		t.Run(name, func(t *testing.T) {
			ended := 4
			if strings.Contains(tt.log, "23:59") {
				ended = 900
			}
			l, _ := placedLogIn(t, tt.log, 1, ended)
			var got []string
			for line, err := range linesOf(t.Context(), l) {
				if err != nil {
					t.Fatal(err)
				}
				s := fmt.Sprintf("%d unknown", line.Number)
				if line.Time.Known() {
					s = fmt.Sprintf("%d %s ±%s %s", line.Number, line.Time.At.Format("15:04:05.999999999"), line.Time.Error, line.Time.Clock)
				}
				if line.Continues {
					s += " +"
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A zone has the reason why it is known or not known, and its likely offset if several fit.
func TestZones(t *testing.T) {
	for name, tt := range map[string]struct {
		log          string
		began, ended int
		known        bool
		likely       time.Duration // -1: none
		why          string
	}{
		"one":     {"2026-11-24 21:16:22 x", 1, 4, true, -1, "the only one"},
		"several": {"2026-11-24 21:16:22 x", 0, 3600, false, 8 * time.Hour, "5 zones fit its run"},
		"none":    {"2026-11-24 21:20:22 x", 0, 4, false, -1, "no zone fits its run"},
	} {
		t.Run(name, func(t *testing.T) {
			l, p := placedLogIn(t, tt.log, tt.began, tt.ended)
			if l.Zone.Known != tt.known || !strings.Contains(l.Zone.Why, tt.why) || tt.known == (len(p.Notes) > 0) || l.Zone.HasLikely != (tt.likely >= 0) || l.Zone.HasLikely && l.Zone.Likely != tt.likely {
				t.Errorf("%+v, notes %v", l.Zone, p.Notes)
			}
		})
	}
}

// If several zones fit, the one counts that the environment sets, unless the log begins with its run in another one.
func TestDeclaredZone(t *testing.T) {
	if _, err := time.LoadLocation("Asia/Shanghai"); err != nil {
		t.Skip("this machine has no time zones: ", err)
	}
	const of, later = "2026-11-24 21:16:22 x", "2026-11-24 22:16:22 x"
	java := corev1.Container{Env: []corev1.EnvVar{{Name: "TZ", Value: "UTC"}, {Name: "JAVA_TOOL_OPTIONS", Value: "-Xmx1g -Duser.timezone=Asia/Shanghai"}}}
	tz := func(zone string) corev1.Container {
		return corev1.Container{Env: []corev1.EnvVar{{Name: "TZ", Value: zone}}}
	}
	for name, tt := range map[string]struct {
		log   string
		spec  corev1.Container
		known bool
		why   string
	}{
		"it fits":                            {of, tz("Asia/Shanghai"), true, "TZ=Asia/Shanghai in its environment"},
		"with a colon":                       {of, tz(":Asia/Shanghai"), true, "TZ=Asia/Shanghai"},
		"of Java":                            {of, java, true, "-Duser.timezone=Asia/Shanghai"},
		"it does not fit":                    {of, tz("America/New_York"), false, "zones fit"},
		"the log begins in another one":      {later, tz("Asia/Shanghai"), false, "zones fit"},
		"no zone of this name":               {of, tz("Middle/Earth"), false, "zones fit"},
		"the zone of the machine is none":    {of, tz("Local"), false, "zones fit"},
		"times without a date in a long run": {"21:16:22.100 x", tz("Asia/Shanghai"), false, "zones fit"},
		"none":                               {of, corev1.Container{}, false, "zones fit"},
	} {
		t.Run(name, func(t *testing.T) {
			l := logIn(tt.log, 0, 2*3600)
			if strings.HasPrefix(tt.log, "21:") {
				l = logIn(tt.log, 0, 48*3600)
			}
			tt.spec.Name = "app"
			started := Time{At: l.from, Error: time.Second, Clock: NodeClock}
			p := &Pod{
				Object:     &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{tt.spec}}},
				Containers: []*Container{{Name: "app", Logs: []*Log{l}, Runs: []Run{{Started: started, Finished: Time{At: l.to.Add(-time.Second), Error: time.Second}}}}},
			}
			p.place(t.Context())
			if l.Zone.Known != tt.known || !strings.Contains(l.Zone.Why, tt.why) || tt.known && l.Zone.Offset != 8*time.Hour {
				t.Errorf("%+v", l.Zone)
			}
		})
	}
}

// All runs of a container have the same zone, so the log of a short run determines the zone of a long one.
func TestAShortRunPlacesALongOne(t *testing.T) {
	long, short := logIn("2026-11-24 21:16:22 x", 0, 3600), logIn("2026-11-24 22:16:25 x", 3604, 3606)
	long.Run, short.Run = 0, 1
	run := func(n int, l *Log) Run {
		return Run{Number: n, Started: Time{At: l.from, Error: time.Second}, Finished: Time{At: l.to.Add(-time.Second), Error: time.Second}}
	}
	p := &Pod{Containers: []*Container{{Name: "app", Logs: []*Log{long, short}, Runs: []Run{run(0, long), run(1, short)}}}}
	p.place(t.Context())
	if !long.Zone.Known || long.Zone.Offset != 8*time.Hour || short.Zone.Offset != 8*time.Hour || len(p.Notes) > 0 {
		t.Errorf("%+v, %+v, notes %v", long.Zone, short.Zone, p.Notes)
	}
}

// linesOf yields the lines of a log with their times.
func linesOf(ctx context.Context, l *Log) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for b, err := range l.blocks(ctx, blockSize) {
			if err != nil {
				yield(Line{}, err)
				return
			}
			for i := range b.len() {
				if !yield(b.line(i), nil) {
					return
				}
			}
		}
	}
}

func TestScan(t *testing.T) {
	var b strings.Builder
	for i := 1; i <= 400; i++ {
		fmt.Fprintf(&b, "2026-11-24T13:16:22.%03dZ line %d\n", i, i)
		if i%20 == 0 {
			fmt.Fprintf(&b, "java.net.ConnectException: Connection REFUSED %d\n\tat x\n", i)
		}
	}
	b.WriteString(strings.Repeat("x", 3*MaxLine) + " refused\n\xff\xfe\nlast")
	patterns := []Pattern{
		{Name: "refused", Any: []string{"connection refused", "ECONNREFUSED"}},
		{Name: "only 40", Any: []string{"refused"}, Only: func(text []byte) bool { return bytes.HasSuffix(text, []byte(" 40")) }},
		{Name: "overlap", Any: []string{"that", "x x"}}, {Name: "none", Any: []string{"timeout"}},
	}
	found, _, err := logIn(b.String(), 1, 4).Scan(t.Context(), patterns)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]int{}
	for _, h := range found {
		got[h.Pattern] = append(got[h.Pattern], h.Line.Number)
	}
	want := map[string][]int{"only 40": {43}, "refused": {21, 43, 65, 87, 109, 131, 153, 175, 285, 307, 329, 351, 373, 395, 417, 439}} // the first eight and the last eight
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hits (-want +got):\n%s", diff)
	}
	around := func(lines []Line) (out string) {
		for _, l := range lines {
			out += " " + string(l.Text[max(0, len(l.Text)-2):])
		}
		return out
	}
	first, last := found[1], found[len(found)-1]
	if got, want := around(first.Before)+" |"+around(first.After), " 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 |  x 41 42 43 44 45"; got != want || first.Line.Time.At.Nanosecond() != 40e6 {
		t.Errorf("around the second hit, of %s:%s, want%s", first.Line.Time.At, got, want)
	}
	if got, want := around(last.After), "  x xx \xff\xfe st"; got != want {
		t.Errorf("after the last hit:%q, want%q", got, want)
	}
}

func TestALogThatBreaksOff(t *testing.T) {
	l := logIn("", 0, 1)
	broken := errors.New("broken")
	l.open = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("2026-11-24T13:16:20Z refused\n", 10_000)), iotest.ErrReader(broken))), nil
	}
	found, _, err := l.Scan(t.Context(), []Pattern{{Name: "refused", Any: []string{"refused"}}})
	if !errors.Is(err, broken) || len(found) != 16 {
		t.Errorf("%v, %d hits", err, len(found))
	}
	l.open = func(context.Context) (io.ReadCloser, error) { return nil, broken }
	if _, _, err := l.Scan(t.Context(), nil); !errors.Is(err, broken) || !strings.Contains(err.Error(), "app.log") {
		t.Error(err)
	}
}

func TestShow(t *testing.T) {
	line := []byte("\x1b[31mERROR\x1b[0m \x1b]0;title\x07 postgres://u:hunter2@db \xff")
	if got, want := Show(line, false), `ERROR \x1b]0;title\x07 postgres://(masked)@db \xff`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Show(line, true); !strings.Contains(got, "u:hunter2@db") {
		t.Errorf("%q", got)
	}
}

func TestCompare(t *testing.T) {
	base := time.Date(2026, 11, 24, 13, 16, 22, 0, time.UTC)
	at := func(ms int, e time.Duration, c Clock) Time {
		return Time{At: base.Add(time.Duration(ms) * time.Millisecond), Error: e, Clock: c}
	}
	for name, tt := range map[string]struct {
		a, b Time
		want Order
	}{
		"whole seconds apart":              {at(0, time.Second, NodeClock), at(1000, time.Second, NodeClock), Before},
		"a line within the second":         {at(0, time.Second, NodeClock), at(999, time.Millisecond, NodeClock), CannotTell},
		"a line in the second after":       {at(1000, time.Millisecond, NodeClock), at(0, time.Second, NodeClock), After},
		"the same second":                  {at(0, time.Second, NodeClock), at(0, time.Second, NodeClock), CannotTell},
		"different clocks":                 {at(0, time.Second, NodeClock), at(9000, time.Second, APIClock), CannotTell},
		"one is not known":                 {Time{}, at(0, 0, NodeClock), CannotTell},
		"the same exact instant":           {at(0, 0, NodeClock), at(0, 0, NodeClock), CannotTell},
		"placed, although clocks differ":   {at(0, time.Second, NodeClock), Skew{Least: 5 * time.Second, Most: 6 * time.Second, HasLeast: true, HasMost: true}.Place(at(0, time.Second, APIClock)), Before},
		"placed, within the clocks' error": {at(0, time.Second, NodeClock), Skew{Least: -5 * time.Second, Most: 6 * time.Second, HasLeast: true, HasMost: true}.Place(at(0, time.Second, APIClock)), CannotTell},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.a.Compare(tt.b); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if got := tt.b.Compare(tt.a); got != [...]Order{CannotTell, After, Before}[tt.want] {
				t.Errorf("the other way round: %v", got)
			}
		})
	}
}
