package gate

import (
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

func TestWhenAnEdgeOpens(t *testing.T) {
	healthy := startup.Edge{From: "cache", To: "app", After: startup.Healthy}
	with := func(change func(*startup.Edge)) startup.Edge {
		e := healthy
		change(&e)
		return e
	}
	optional := with(func(e *startup.Edge) { e.Optional = true })
	runs := state.Seen{Known: true, Alive: true, Record: state.Record{Phase: state.Running}}
	well := state.Seen{Known: true, Alive: true, Record: state.Record{Phase: state.Running, Healthy: true}}
	killed := state.Seen{Known: true, Record: state.Record{Phase: state.Running, Healthy: true}}
	tests := map[string]struct {
		edge   startup.Edge
		seen   state.Seen
		got    answer
		waited time.Duration
		want   startup.Decision
	}{
		"it has no record":                         {edge: healthy, want: startup.Blocked},
		"it runs":                                  {edge: healthy, seen: runs, want: startup.Blocked},
		"it is healthy":                            {edge: healthy, seen: well, want: startup.Satisfied},
		"its last word was healthy":                {edge: healthy, seen: killed, want: startup.Blocked},
		"it answers that it is healthy":            {edge: healthy, got: answer{responded: true, healthy: true}, want: startup.Satisfied},
		"it answers that it is not":                {edge: healthy, got: answer{responded: true}, want: startup.Blocked},
		"it answers, and is only to be started":    {edge: with(func(e *startup.Edge) { e.After = startup.Started }), got: answer{responded: true}, want: startup.Satisfied},
		"it answers, and is to be completed":       {edge: with(func(e *startup.Edge) { e.After = startup.Completed }), got: answer{responded: true, healthy: true}, want: startup.Blocked},
		"optional, and it has no record":           {edge: optional, want: startup.Blocked},
		"optional, and it was killed":              {edge: optional, seen: killed, want: startup.Waived},
		"before the timeout":                       {edge: with(func(e *startup.Edge) { e.Timeout = time.Second }), waited: time.Second - 1, want: startup.Blocked},
		"at the timeout":                           {edge: with(func(e *startup.Edge) { e.Timeout = time.Second }), waited: time.Second, want: startup.GivenUp},
		"at the timeout, and it is there":          {edge: with(func(e *startup.Edge) { e.Timeout = time.Second }), seen: well, waited: time.Second, want: startup.Satisfied},
		"at a timeout after which it may continue": {edge: with(func(e *startup.Edge) { e.Timeout, e.OnTimeout = time.Second, startup.Continue }), waited: time.Second, want: startup.Expired},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, why := decide(tt.edge, tt.seen, tt.got, tt.waited); got != tt.want || (why == "") != (got == startup.Blocked) {
				t.Errorf("decide is %v (%s), want %v", got, why, tt.want)
			}
		})
	}
}

// The simulated gate and the real one agree, so the proofs of package verify, which are about the
// simulated gate, also hold for the real one. The test gives both gates all event sequences of one
// dependency, up to six events long.
func TestTheGateIsTheOneThatIsSimulated(t *testing.T) {
	type world struct {
		sim      gates.State
		rec      state.Record
		alive    bool
		n        int
		sandbox  bool // the record is from an earlier sandbox
		anything bool
	}
	seen := func(w world) state.Seen {
		if !w.anything || w.sandbox {
			return state.Seen{}
		}
		return state.Seen{Record: w.rec, Known: true, Alive: w.alive}
	}
	runs := func(w world) bool { return w.anything && w.alive && w.rec.Phase == state.Running }
	ends := func(code int, silent bool) func(world) (world, bool) {
		return func(w world) (world, bool) {
			if !runs(w) {
				return w, false
			}
			what := startup.HasFailed
			if code == 0 {
				what = startup.IsCompleted
			}
			w.sim, _ = w.sim.Follow(kubelet.Event{Kind: kubelet.Exited, Container: "cache", Code: code}, startup.Timeline{{Container: "cache", What: what}})
			w.alive = false
			if !silent {
				w.rec.Phase, w.rec.Healthy, w.rec.Code = state.Ended, false, code
				w.rec.Completed = w.rec.Completed || code == 0
			}
			return w, true
		}
	}
	health := func(to bool) func(world) (world, bool) {
		return func(w world) (world, bool) {
			if !runs(w) || w.rec.Healthy == to {
				return w, false
			}
			w.sim, _ = w.sim.SetHealth("cache", to, 0)
			w.rec.Healthy = to
			return w, true
		}
	}
	events := map[string]func(world) (world, bool){
		"starts": func(w world) (world, bool) {
			if runs(w) {
				return w, false
			}
			w.sim, _ = w.sim.Follow(kubelet.Event{Kind: kubelet.Started, Container: "cache", OK: true}, startup.Timeline{{Container: "cache", What: startup.IsStarted, Incarnation: w.n}})
			w.n++
			completed := w.rec.Completed && !w.sandbox
			w.rec, w.alive, w.anything, w.sandbox = state.Record{Phase: state.Running, Completed: completed}, true, true, false
			return w, true
		},
		"healthy": health(true), "unhealthy": health(false),
		"completes": ends(0, false), "fails": ends(1, false), "is killed": ends(gates.Killed, true),
		"sandbox": func(w world) (world, bool) {
			if runs(w) {
				return w, false
			}
			w.sim, _ = w.sim.Follow(kubelet.Event{}, startup.Timeline{{What: startup.NewSandbox}})
			w.sandbox = true
			return w, true
		},
	}
	for _, plan := range []string{"healthy", "started", "completed", "healthy, optional", "started, optional"} {
		text := "app after cache is " + plan + ", by gate"
		p, err := startup.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		stories := 0
		var extend func(w world, story string, left int)
		extend = func(w world, story string, left int) {
			stories++
			d, _ := decide(p.Edges[0], seen(w), answer{}, 0)
			if want := w.sim.MayRun("app", 0); d.Open() != want {
				t.Fatalf("%s; cache %s: the gate opens: %v, the simulated one: %v", text, story, d.Open(), want)
			}
			if left == 0 {
				return
			}
			for name, event := range events {
				if next, can := event(w); can {
					extend(next, story+", "+name, left-1)
				}
			}
		}
		extend(world{sim: gates.New(p, gates.Gate{})}, "", 6)
		if stories < 100 {
			t.Errorf("%s: only %d stories", text, stories)
		}
	}
}

func TestStarts(t *testing.T) {
	running := func(n int) state.Seen {
		return state.Seen{Known: true, Alive: true, Record: state.Record{Phase: state.Running, Starts: n}}
	}
	tests := map[string]struct {
		seen state.Seen
		base int
		want bool
	}{
		"it has not started":                  {running(0), 0, false},
		"its first start, after To's":         {running(1), 0, false},
		"its second start, after To's":        {running(2), 0, true},
		"as often as when To started":         {running(3), 3, false},
		"once more than when To started":      {running(4), 3, true},
		"it came back, and is gone again":     {state.Seen{Known: true, Record: state.Record{Phase: state.Ended, Starts: 2}}, 1, true},
		"nothing is known of it in a sandbox": {state.Seen{}, 3, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := starts{"cache": tt.base}
			if got := s.restarted("cache", tt.seen); got != tt.want || s.restarted("cache", tt.seen) {
				t.Errorf("restarted is %v, want %v, and false for the same record again", got, tt.want)
			}
		})
	}
}

func TestWhatAPreStopHookLeavesOfTheGracePeriod(t *testing.T) {
	stopped := time.Unix(1000, 0)
	for _, tt := range []struct{ after, grace, want time.Duration }{
		{0, 10 * time.Second, 10 * time.Second},
		{5 * time.Second, 10 * time.Second, 5 * time.Second},
		{time.Minute, 10 * time.Second, 2 * time.Second}, // what the kubelet leaves
		{time.Minute, time.Second, time.Second},
		{-time.Second, 10 * time.Second, 10 * time.Second}, // another container was stopped later
	} {
		if got := restAt(stopped.Add(tt.after), stopped, tt.grace); got != tt.want {
			t.Errorf("%s after the stop %s are left of %s, want %s", tt.after, got, tt.grace, tt.want)
		}
	}
	if got := restAt(stopped, time.Time{}, time.Minute); got != time.Minute {
		t.Errorf("%s are left of a minute when nothing is known", got)
	}
}

func TestHowLongACommandIsKeptForOthers(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{30 * time.Second: 28 * time.Second, 3 * time.Second: 1500 * time.Millisecond, 0: 0, -1: 0} {
		if got := contract.StopLimit(grace); got != want {
			t.Errorf("contract.StopLimit(%s) is %s, want %s", grace, got, want)
		}
	}
}
