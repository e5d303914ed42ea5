package kubelet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/startup"
)

// A world is what surrounds a kubelet in a test: containers that behave as described,
// on a virtual clock. Images are there, containers start at once, are healthy at
// once, run for ever and end at once by SIGTERM, unless a behaviour overrides it.
type world struct {
	begin      time.Duration // of the first pass; shifts the pod against the relists
	sandbox    time.Duration // that making one takes
	containers map[string]behaviour
	script     []Event // what happens at set times
	until      time.Duration
}

type behaviour struct {
	imageAt   time.Duration   // pulls fail before
	broken    bool            // cannot be started
	healthy   time.Duration   // after its start; never: not at all
	sickAt    time.Duration   // at that time of the first incarnation it is unhealthy; 0: not
	lives     []time.Duration // of each incarnation, the later ones run for ever; never: this one too
	code      int             // with which these lives end
	stops     time.Duration   // after SIGTERM; never: it ignores it
	hook      time.Duration   // of postStart; without: until it is healthy
	hookFails bool
	preStop   time.Duration
}

const ms = time.Millisecond
const sec = time.Second

// A scheduled event is dropped if its container is no longer in that incarnation.
type scheduled struct {
	Event
	incarnation int // -1: does not matter
	health      startup.What
}

type runner struct {
	t       testing.TB
	state   State
	world   world
	queue   []scheduled
	log     startup.Timeline
	actions []Action
	healthy map[string]bool
}

// play runs a pod in a world and returns what happened.
func play(t testing.TB, p Pod, v Version, w world) *runner {
	t.Helper()
	r := &runner{t: t, state: New(p, v), world: w, healthy: map[string]bool{}}
	for _, e := range append([]Event{{Kind: Added, At: w.begin}}, w.script...) {
		r.queue = append(r.queue, scheduled{Event: e, incarnation: -1})
	}
	for steps := 0; ; steps++ {
		if steps > 100_000 {
			t.Fatal("the pod never comes to rest")
		}
		e, ok := r.next()
		if !ok || e.At > w.until {
			return r
		}
		r.happen(e)
	}
}

// next is the next event: of the queue, or time, whichever is first.
func (r *runner) next() (scheduled, bool) {
	slices.SortStableFunc(r.queue, func(a, b scheduled) int { return int(a.At - b.At) })
	due, ok := r.state.Next()
	if len(r.queue) > 0 && (!ok || r.queue[0].At <= due) {
		e := r.queue[0]
		r.queue = r.queue[1:]
		return e, true
	}
	return scheduled{Event: Event{At: due, Kind: Tick}, incarnation: -1}, ok
}

func (r *runner) happen(e scheduled) {
	before := r.state
	view := before.View(e.Container)
	if e.incarnation >= 0 && (view.Incarnation != e.incarnation || e.Kind == Exited && !view.Running) {
		return
	}
	if e.health != "" {
		r.healthy[e.Container] = e.health == startup.IsHealthy
		r.log = append(r.log, startup.Event{Container: e.Container, What: e.health, At: e.At, Incarnation: e.incarnation})
		return
	}
	if e.Kind == ProbeAnswered {
		e.OK = r.healthy[e.Container]
	}
	after, actions := before.Step(e.Event)
	r.state, r.actions = after, append(r.actions, actions...)
	r.log = append(r.log, Happened(before, e.Event, actions)...)
	if e.Kind == Exited {
		r.healthy[e.Container] = false
	}
	if e.Kind == Started && e.OK {
		r.started(e.Event)
	}
	for _, a := range actions {
		r.answer(a)
	}
}

// started plans the life of an incarnation.
func (r *runner) started(e Event) {
	b, n := r.world.containers[e.Container], r.state.View(e.Container).Incarnation
	r.healthy[e.Container] = false
	if b.healthy != never {
		r.plan(scheduled{Event{At: e.At + b.healthy, Container: e.Container}, n, startup.IsHealthy})
	}
	if b.sickAt > 0 && n == 0 {
		r.plan(scheduled{Event{At: e.At + b.sickAt, Container: e.Container}, n, startup.IsUnhealthy})
	}
	if n < len(b.lives) && b.lives[n] != never {
		r.plan(scheduled{Event: Event{At: e.At + b.lives[n], Kind: Exited, Container: e.Container, Code: b.code}, incarnation: n})
	}
}

// answer plans the event that answers an action.
func (r *runner) answer(a Action) {
	b, n := r.world.containers[a.Container], r.state.View(a.Container).Incarnation
	event, answered := a.Answer(a.At, true)
	if !answered {
		return
	}
	e := scheduled{Event: event, incarnation: n}
	switch a.Kind {
	case CreateSandbox:
		e.At += r.world.sandbox
	case Pull:
		e.OK = a.At >= b.imageAt
	case Start:
		e.OK = !b.broken
	case Stop:
		if b.stops == never {
			return
		}
		e.At += b.stops
	case RunHook:
		if e.At, e.OK = b.hookReturns(a); e.At == never {
			return
		}
	}
	r.plan(e)
}

// hookReturns is when the hook of an action returns, or never, and how.
func (b behaviour) hookReturns(a Action) (time.Duration, bool) {
	switch {
	case a.Which == PreStop:
		return a.At + b.preStop, true
	case b.hook > 0:
		return a.At + b.hook, !b.hookFails
	case b.healthy == never:
		return never, false
	default:
		return a.At + b.healthy, true
	}
}

func (r *runner) plan(e scheduled) { r.queue = append(r.queue, e) }

// lines is the timeline without health and addresses, one event per line, as
// "3s app started".
func (r *runner) lines() []string {
	var out []string
	for _, e := range r.log {
		if e.What == startup.IsHealthy || e.What == startup.IsWaiting || e.What == startup.HasAddress {
			continue
		}
		words := strings.Fields(e.At.String() + " " + e.Container + " " + string(e.What))
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// when returns the times at which that happened to a container.
func (r *runner) when(name string, what startup.What) []time.Duration {
	var out []time.Duration
	for _, e := range r.log {
		if e.Container == name && e.What == what {
			out = append(out, e.At)
		}
	}
	return out
}

// acted returns the times at which the kubelet did that to a container.
func (r *runner) acted(name string, what ActionKind) []time.Duration {
	var out []time.Duration
	for _, a := range r.actions {
		if a.Container == name && a.Kind == what {
			out = append(out, a.At)
		}
	}
	return out
}

// phases is each phase in the order in which they were published.
func (r *runner) phases() []Phase {
	phases := []Phase{Pending}
	for _, a := range r.actions {
		if a.Kind == Publish {
			phases = append(phases, a.Status.Phase)
		}
	}
	return slices.Compact(phases)
}
