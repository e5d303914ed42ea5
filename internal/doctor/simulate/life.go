package simulate

import (
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// start handles the start of a container by the kubelet. If the container waits before its command, start queues
// events at the times when the wait may end.
func (r *run) start(name string, at time.Duration) {
	if !r.gates.Waits(name) {
		return
	}
	r.lives[name].asleep = at + r.of(name).Sleeps - r.sleepsWithin(name)
	r.later(name, queuedEvent{at: r.lives[name].asleep, kind: wakes})
	for _, e := range r.Plan.Edges {
		if e.To == name && e.Timeout > 0 {
			r.later(name, queuedEvent{at: at + e.Timeout, kind: wakes})
		}
	}
}

// begin queues the events of one run of a command.
func (r *run) begin(name string, at time.Duration) {
	b, n := r.of(name), r.lives[name].number
	r.lives[name].number++
	at += r.sleepsWithin(name)
	if b.Healthy != Forever && r.hasHealth(name) {
		r.later(name, queuedEvent{at: at + b.Healthy, kind: getsHealthy})
	}
	if n == 0 && b.Sick > 0 {
		r.later(name, queuedEvent{at: at + b.Sick, kind: getsSick})
	}
	for _, c := range b.Calls {
		r.later(name, queuedEvent{at: at + c.After, kind: calls, call: c})
	}
	if end, ok := b.end(n); ok {
		r.later(name, queuedEvent{event: kubelet.Event{At: at + end.After, Kind: kubelet.Exited, Container: name, Code: end.Code}})
	}
}

// sleepsWithin returns the time for which the command sleeps after it began. It is 0 if an edge relies on the sleep,
// because such a sleep comes before the command begins (see [run.start]).
func (r *run) sleepsWithin(name string) time.Duration {
	if slices.ContainsFunc(r.Plan.Edges, func(e startup.Edge) bool { return e.To == name && waitsBySleep(e) }) {
		return 0
	}
	return r.of(name).Sleeps
}

func waitsBySleep(e startup.Edge) bool { return e.By == startup.Sleep || e.By == startup.BoundedLoop }

// hasHealth reports whether a container can be healthy. Init containers cannot, because they are expected to
// complete.
func (r *run) hasHealth(name string) bool {
	c, _ := r.Plan.Find(name)
	return c.Kind != startup.Init
}

// forget resets the state of a container that ended, and makes its pending postStart hook return with a failure.
func (r *run) forget(name string, at time.Duration) {
	for _, a := range r.kubelet.Open() {
		if a.Container == name && a.Which == kubelet.PostStart {
			r.plan(queuedEvent{event: kubelet.Event{At: at, Kind: kubelet.HookReturned, Container: name, Which: kubelet.PostStart}})
		}
	}
	l := r.lives[name]
	*l = life{number: l.number, pulling: l.pulling}
}

func (r *run) getSick(name string, at time.Duration) {
	r.lives[name].healthy = nil
	if r.gates.Healthy(name) {
		r.setHealth(name, false, at)
	}
	if d := r.of(name).SickFor; d > 0 {
		r.later(name, queuedEvent{at: at + d, kind: getsHealthy})
	}
}

func (r *run) setHealth(name string, healthy bool, at time.Duration) {
	var happened startup.Timeline
	r.gates, happened = r.gates.SetHealth(name, healthy, at)
	r.note(happened)
}

// makeCall makes a call. The call is refused if its target is not healthy.
func (r *run) makeCall(name string, c Call, at time.Duration) {
	if !r.gates.Runs(name) {
		return
	}
	if c.Every > 0 {
		r.later(name, queuedEvent{at: at + c.Every, kind: calls, call: c})
	}
	if r.gates.Healthy(c.To) {
		return
	}
	r.note(startup.Timeline{{Container: name, What: startup.IsRefused, At: at, Incarnation: r.kubelet.View(name).Incarnation, Detail: "by " + c.To}})
	if c.Exits {
		r.later(name, queuedEvent{event: kubelet.Event{At: at, Kind: kubelet.Exited, Container: name, Code: c.Code}})
	}
}
