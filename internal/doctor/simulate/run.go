package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/startup"
)

// A queuedEvent is an event that will happen at a known time.
type queuedEvent struct {
	at          time.Duration
	kind        queuedKind
	event       kubelet.Event // only if kind is toKubelet
	name        string
	incarnation int // the event is dropped unless the container is in this incarnation; anyLife: it always happens
	call        Call
}

type queuedKind int

const (
	toKubelet queuedKind = iota
	getsHealthy
	getsSick
	calls
	wakes // a sleep or a gate's timeout ends, so that the gates must be checked again
)

const anyLife = -1

type run struct {
	Scenario
	kubelet kubelet.State
	gates   gates.State
	queue   []queuedEvent
	lives   map[string]*life
	outcome Outcome
}

// A life is the state of a container in its present incarnation.
type life struct {
	number  int            // number of times that its command began before; not reset
	pulling *time.Duration // start of the image pull that is in progress
	asleep  time.Duration  // end of the sleep before its command
	healthy *time.Duration // time from which it is healthy, as soon as gates allow it; nil: not planned
	hook    bool           // a postStart hook is waiting for health
	probe   bool           // a startup probe is waiting for the gate
	stop    bool           // a stop signal has not reached the command yet
	stays   *time.Duration // earliest return of its preStop hook, which waits for those that need it; nil: none runs
	holds   time.Duration  // the time at which its gate or its preStop hook no longer waits for those that need it
}

// tooMany is the limit of events. It ends a simulation in which one instant has infinitely many events.
const tooMany = 1_000_000

// Run simulates a scenario. It fails if the parts of the scenario do not belong together, or if there are too many
// events.
func Run(s Scenario) (Outcome, error) {
	if err := s.check(); err != nil {
		return Outcome{}, err
	}
	b := s.Behaviour
	b.Until = cmp.Or(b.Until, defaultUntil)
	r := newRun(s)
	r.script(b)
	for steps := 0; ; steps++ {
		h, ok := r.next()
		if !ok || h.at > b.Until {
			break
		}
		if steps > tooMany {
			return Outcome{}, fmt.Errorf("simulating a pod: more than %d events by %s", tooMany, h.at)
		}
		r.happen(h)
		r.settle(h.at)
		r.outcome.End = h.at
		if r.kubelet.Done() {
			break // all remaining events are of incarnations that have ended
		}
	}
	r.finish(b.Until)
	return r.outcome, nil
}

func newRun(s Scenario) *run {
	version := cmp.Or(s.Behaviour.Kubernetes, kubelet.Newest)
	s.Plan = s.Plan.Expand()
	r := &run{Scenario: s, kubelet: kubelet.New(s.Pod, kubelet.Minor(version)), gates: gates.New(s.Plan, gates.Gate{}), lives: map[string]*life{}}
	for _, c := range s.Plan.Containers {
		r.lives[c.Name] = &life{}
	}
	return r
}

// script queues the events that happen at times which the behaviour sets.
func (r *run) script(b Behaviour) {
	at := func(t time.Duration, kind kubelet.EventKind) {
		r.plan(queuedEvent{event: kubelet.Event{At: t, Kind: kind}})
	}
	at(b.Begins, kubelet.Added)
	for _, t := range b.SandboxDies {
		at(t, kubelet.SandboxDied)
	}
	if b.Deleted > 0 {
		at(b.Deleted, kubelet.Deleted)
	}
	for _, c := range r.Plan.Containers {
		for _, t := range b.Containers[c.Name].KilledAt {
			r.plan(queuedEvent{event: kubelet.Event{At: t, Kind: kubelet.Exited, Container: c.Name, Code: gates.Killed}})
		}
	}
}

// plan queues an event that does not depend on the container's incarnation.
func (r *run) plan(h queuedEvent) {
	h.incarnation = anyLife
	r.add(h)
}

// later queues an event that is dropped if the container's present incarnation ends earlier.
func (r *run) later(name string, h queuedEvent) {
	h.name, h.incarnation = name, r.kubelet.View(name).Incarnation
	r.add(h)
}

func (r *run) add(h queuedEvent) {
	if h.kind == toKubelet {
		h.at = h.event.At
	}
	i, _ := slices.BinarySearchFunc(r.queue, h, func(a, b queuedEvent) int {
		if a.at <= b.at { // events of the same time stay in the order in which they were queued
			return -1
		}
		return 1
	})
	r.queue = slices.Insert(r.queue, i, h)
}

// next returns the next event: the first of the queue, or a tick of the kubelet if that is earlier.
func (r *run) next() (queuedEvent, bool) {
	due, ok := r.kubelet.Next()
	if len(r.queue) > 0 && (!ok || r.queue[0].at <= due) {
		h := r.queue[0]
		r.queue = r.queue[1:]
		return h, true
	}
	return queuedEvent{at: due, event: kubelet.Event{At: due, Kind: kubelet.Tick}, incarnation: anyLife}, ok
}

func (r *run) happen(h queuedEvent) {
	view := r.kubelet.View(h.name)
	if h.incarnation != anyLife && (view.Incarnation != h.incarnation || !view.Running) {
		return
	}
	switch h.kind {
	case toKubelet:
		r.step(h.event)
	case getsHealthy:
		r.lives[h.name].healthy = &h.at
	case getsSick:
		r.getSick(h.name, h.at)
	case calls:
		r.makeCall(h.name, h.call, h.at)
	}
}

// step passes an event to the kubelet's model, and handles the actions that it returns.
func (r *run) step(e kubelet.Event) {
	before := r.kubelet
	if !possible(before, e) {
		return
	}
	r.pulled(e)
	after, actions := before.Step(e)
	r.kubelet = after
	var happened startup.Timeline
	r.gates, happened = r.gates.Follow(e, kubelet.Happened(before, e, actions))
	r.note(happened)
	if e.Kind == kubelet.Started && e.OK {
		r.start(e.Container, e.At)
	}
	for _, a := range actions {
		r.answer(a)
	}
}

// possible reports whether a queued event can still happen. It cannot if its container has ended, or if its hook has
// returned.
func possible(k kubelet.State, e kubelet.Event) bool {
	switch e.Kind {
	case kubelet.Exited:
		return k.View(e.Container).Running
	case kubelet.HookReturned:
		return slices.ContainsFunc(k.Open(), func(a kubelet.Action) bool { return a.Container == e.Container && a.Which == e.Which })
	default:
		return true
	}
}

// note adds events to the timeline, and handles the beginnings and the ends of commands.
func (r *run) note(happened startup.Timeline) {
	r.outcome.Timeline = append(r.outcome.Timeline, happened...)
	for _, ev := range happened {
		switch ev.What {
		case startup.IsStarted:
			r.begin(ev.Container, ev.At)
		case startup.IsCompleted, startup.HasFailed:
			r.forget(ev.Container, ev.At)
		}
	}
}

// finish completes the outcome, with the pulls that are still in progress.
func (r *run) finish(until time.Duration) {
	o := &r.outcome
	o.Over = r.kubelet.Done()
	if !o.Over {
		o.End = until
	}
	for _, c := range r.Plan.Containers {
		if since := r.lives[c.Name].pulling; since != nil {
			o.Pulls = append(o.Pulls, chart.Pull{Container: c.Name, From: *since, To: o.End})
		}
	}
	o.Timeline = o.Timeline.Sorted()
	o.Violations = startup.Check(r.Plan, o.Timeline)
}
