package kubelet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

var (
	everySecond = Probe{Handler: Exec, Period: sec}
	nativeProxy = Container{Name: "proxy", Restart: Always}
)

// pods lists the pods with which the properties are tested.
var pods = []Pod{
	{Containers: []Container{{Name: "app"}}},
	{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app", PreStop: HTTPGet}}, Grace: 3 * sec},
	{Init: []Container{nativeProxy}, Containers: []Container{{Name: "app"}, {Name: "web", Liveness: everySecond}}},
	{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond, Liveness: everySecond, PreStop: Exec}, {Name: "migrate"}, {Name: "vault", Restart: Always, PostStart: HTTPGet}},
		Containers: []Container{{Name: "app", Readiness: everySecond, Startup: everySecond}}},
	{Restart: Never, Init: []Container{{Name: "migrate"}, nativeProxy}, Containers: []Container{{Name: "job"}}},
	{Restart: OnFailure, Init: []Container{{Name: "migrate", PostStart: Exec}}, Containers: []Container{{Name: "a", PostStart: HTTPGet}, {Name: "b"}}},
}

var eventKinds = []EventKind{Tick, Added, SandboxReady, SandboxDied, Pulled, Started, HookReturned, ProbeAnswered, Exited, Deleted}

// script turns bytes into events. The events and their times are arbitrary, so most make no sense.
func script(p Pod, bytes []byte) []Event {
	names := []string{"none"}
	for _, c := range append(slices.Clone(p.Init), p.Containers...) {
		names = append(names, c.Name)
	}
	events := []Event{{Kind: Added}}
	at := time.Duration(0)
	for len(bytes) >= 4 {
		b := bytes[:4]
		bytes = bytes[4:]
		at += time.Duration(b[0]) * time.Duration(b[0]) * ms // at most 65 s
		events = append(events, Event{At: at, Kind: eventKinds[int(b[1])%len(eventKinds)], Container: names[int(b[2])%len(names)],
			OK: b[3]&1 == 0, Code: int(b[3] & 2), Which: []Which{PostStart, PreStop, Startup, Liveness, Readiness}[int(b[3]>>2)%5]})
	}
	return events
}

// likely returns a random event. In most cases it answers an open action.
func likely(rng *rand.Rand, s State) Event {
	wait := time.Duration(rng.IntN(1500)) * ms
	e := Event{At: s.Now() + wait, Kind: Tick, OK: rng.IntN(4) > 0, Code: max(0, rng.IntN(3)-1)}
	open := s.Open()
	for _, name := range s.Running() {
		if rng.IntN(8) == 0 {
			e.Kind, e.Container = Exited, name
			return e
		}
	}
	switch n := rng.IntN(60); {
	case n == 0:
		e.Kind = SandboxDied
	case n == 1:
		e.Kind = Deleted
	case len(open) > 0:
		a := open[rng.IntN(len(open))]
		e, _ = a.Answer(e.At, e.OK)
	}
	return e
}

// A watcher checks the invariants during a run.
type watcher struct {
	pod    Pod
	done   map[string]bool // init containers that are done in this sandbox
	opened bool            // a regular container was started in this sandbox
	over   bool
}

func newWatcher(p Pod) *watcher { return &watcher{pod: p, done: map[string]bool{}} }

func (w *watcher) watch(before State, e Event, after State, actions []Action) error {
	if before.Done() && len(actions) > 0 {
		return fmt.Errorf("a pod at its end does %v", actions)
	}
	if after.Now() < before.Now() || after.Now() < e.At {
		return fmt.Errorf("time went from %s to %s", before.Now(), after.Now())
	}
	if next, ok := after.Next(); ok && next <= after.Now() {
		return fmt.Errorf("something was due at %s and is not done at %s", next, after.Now())
	}
	if !slices.IsSortedFunc(actions, func(a, b Action) int { return int(a.At - b.At) }) {
		return fmt.Errorf("actions out of order: %v", actions)
	}
	w.record(before, e, after)
	for _, a := range actions {
		if err := w.action(before, a); err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	return nil
}

func (w *watcher) sidecarStarted(s State, c Container) bool {
	i := s.spec.find(c.Name)
	return s.c[i].life.run == running && s.c[i].start.step == notStarting && (c.Startup.Handler == NoHandler || s.c[i].probes.started)
}

func (w *watcher) record(before State, e Event, after State) {
	completed := e.Kind == Exited && e.Code == 0 && before.View(e.Container).Running
	for _, c := range w.pod.Init {
		if c.Restart == Always && w.sidecarStarted(after, c) || c.Restart != Always && completed && c.Name == e.Container {
			w.done[c.Name] = true
		}
	}
}

func (w *watcher) action(before State, a Action) error {
	switch a.Kind {
	case CreateSandbox:
		w.done, w.opened = map[string]bool{}, false
	case Stop:
		if a.Timeout < minimumGrace {
			return fmt.Errorf("less than %s between SIGTERM and SIGKILL", minimumGrace)
		}
	case Pull, Start:
		if w.over {
			return fmt.Errorf("the pod was stopping for good")
		}
		if before.View(a.Container).Running && a.Kind == Start {
			return fmt.Errorf("it runs already")
		}
		return w.start(a)
	case Publish:
		w.over = w.over || a.Status.Phase.over()
	}
	return nil
}

// start checks that the first regular container of a sandbox starts after every init container.
func (w *watcher) start(a Action) error {
	isInit := slices.ContainsFunc(w.pod.Init, func(c Container) bool { return c.Name == a.Container })
	if isInit || w.opened {
		return nil
	}
	for _, c := range w.pod.Init {
		if !w.done[c.Name] {
			return fmt.Errorf("%s is not done", c.Name)
		}
	}
	w.opened = a.Kind == Start
	return nil
}

func TestPropertiesHoldForAnyEvents(t *testing.T) {
	for n, p := range pods {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			v := Minor(29 + rng.IntN(8)) // older versions have no sidecars
			v.Relist *= time.Duration(rng.IntN(2))
			s, w := New(p, v), newWatcher(p)
			e := Event{Kind: Added}
			for range 400 {
				after, actions := s.Step(e)
				if err := w.watch(s, e, after, actions); err != nil {
					t.Fatalf("pod %d, seed %d: %v", n, seed, err)
				}
				s = after
				e = likely(rng, s)
			}
		}
	}
}

// Step does not change its receiver, so that a second call returns the same result.
func TestAStateIsAValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range pods {
		s, e := New(p, Minor(34)), Event{Kind: Added}
		for range 300 {
			key := s.Key()
			one, did := s.Step(e)
			two, again := s.Step(e)
			if s.Key() != key {
				t.Fatalf("Step(%v) changed the state that it was called on", e)
			}
			if diff := cmp.Diff(did, again); diff != "" || one.Key() != two.Key() {
				t.Fatalf("Step(%v) does one thing and then another:\n%s", e, diff)
			}
			s, e = one, likely(rng, one)
		}
	}
}

// Two states with equal keys behave alike from then on, apart from absolute times.
func TestStatesWithOneKeyBehaveAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for n, p := range pods {
		seen := map[string]State{}
		pairs := 0
		for range 40 {
			s, e := New(p, Minor(36)), Event{Kind: Added}
			for range 60 {
				s, _ = s.Step(e)
				if old, ok := seen[s.Key()]; ok && old.Now() != s.Now() {
					pairs++
					if diff := cmp.Diff(future(old), future(s)); diff != "" {
						t.Fatalf("pod %d: two states with one key, at %s and %s (-one +other):\n%s", n, old.Now(), s.Now(), diff)
					}
				}
				seen[s.Key()] = s
				e = likely(rng, s)
				e.At = e.At.Truncate(sec / 2)
			}
		}
		if pairs == 0 {
			t.Errorf("pod %d: no two states with one key: nothing was tested", n)
		}
	}
}

// future returns what a state does next, with times relative to now: all open actions succeed, then all
// containers crash, and time passes.
func future(s State) []string {
	var out []string
	begin := s.Now()
	for range 6 {
		events := []Event{{Kind: Tick, At: s.Now() + 15*sec}}
		for _, a := range s.Open() {
			e, _ := a.Answer(s.Now(), true)
			events = append(events, e)
		}
		for _, name := range s.Running() {
			if len(out)%2 == 0 {
				events = append(events, Event{At: s.Now(), Kind: Exited, Container: name, Code: 1})
			}
		}
		for _, e := range events {
			var actions []Action
			s, actions = s.Step(e)
			for _, a := range actions {
				a.At -= begin
				out = append(out, a.String())
			}
		}
	}
	return out
}

func FuzzStep(f *testing.F) {
	f.Add(uint8(0), []byte{0, 2, 0, 0, 0, 4, 1, 0, 0, 5, 1, 0, 40, 8, 1, 2})
	f.Add(uint8(3), []byte{0, 2, 0, 0, 0, 4, 1, 0, 0, 5, 1, 0, 40, 9, 0, 0, 10, 3, 0, 0})
	f.Fuzz(func(t *testing.T, n uint8, bytes []byte) {
		if len(bytes) > 800 {
			return
		}
		p := pods[int(n)%len(pods)]
		s, w := New(p, Minor(36)), newWatcher(p)
		for _, e := range script(p, bytes) {
			after, actions := s.Step(e)
			if err := w.watch(s, e, after, actions); err != nil {
				t.Fatalf("%v: %v", e, err)
			}
			Happened(s, e, actions)
			s = after
			s.Key()
			s.Open()
		}
	})
}
