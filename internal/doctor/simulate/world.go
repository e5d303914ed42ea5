package simulate

import (
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
)

// of returns the behaviour of a container.
func (r *run) of(name string) Container { return r.Behaviour.Containers[name] }

// answer queues the result of an action of the kubelet, by the behaviour.
func (r *run) answer(a kubelet.Action) {
	e, answered := a.Answer(a.At, true)
	b := r.of(a.Container)
	switch a.Kind {
	case kubelet.Publish:
		r.outcome.Shown = append(r.outcome.Shown, Shown{At: a.At, Status: a.Status})
	case kubelet.CreateSandbox:
		e.At += r.Behaviour.Sandbox
	case kubelet.Pull:
		r.lives[a.Container].pulling = &a.At
		e.At += b.Image
		e.OK = e.At >= b.MissingUntil
	case kubelet.Start:
		e.OK = !b.CannotStart
	case kubelet.RunHook:
		r.hook(a, e)
		return
	case kubelet.RunProbe:
		if e.OK, answered = r.gates.Probe(a); !answered {
			r.lives[a.Container].probe = true // settle queues the result
		}
	case kubelet.Stop:
		r.lives[a.Container].stop = true // settle delivers the signal
		if !r.Pod.PreStopWaits(a.Container) {
			r.hold(a)
		}
		return
	}
	if answered {
		r.plan(queuedEvent{event: e})
	}
}

// pulled records an image pull that ends with e.
func (r *run) pulled(e kubelet.Event) {
	if e.Kind != kubelet.Pulled || r.lives[e.Container].pulling == nil {
		return
	}
	l := r.lives[e.Container]
	since := *l.pulling
	l.pulling = nil
	if e.At > since || !e.OK {
		r.outcome.Pulls = append(r.outcome.Pulls, chart.Pull{Container: e.Container, From: since, To: e.At, Failed: !e.OK})
	}
}

// hook queues the return of a hook, at the time and with the result that the behaviour determines. e is the event of
// a successful return without delay.
func (r *run) hook(a kubelet.Action, e kubelet.Event) {
	b := r.of(a.Container)
	h := b.PostStart
	switch {
	case a.Which == kubelet.PreStop && r.Pod.PreStopWaits(a.Container):
		e.At += b.PreStop
		r.lives[a.Container].stays = &e.At
		r.hold(a)
		r.later(a.Container, queuedEvent{at: e.At, kind: wakes})
		return
	case a.Which == kubelet.PreStop:
		e.At += b.PreStop
	case h.Takes == Forever:
		return
	case h.Fixed:
		e.At, e.OK = e.At+h.Takes, !h.Fails
	case h.Polls != "":
		r.lives[a.Container].hook = true
		e.At, e.OK = e.At+h.Takes, h.GoesOn
	default:
		r.lives[a.Container].hook = true
		return
	}
	r.later(a.Container, queuedEvent{event: e})
}

// stopAfter queues the end of a container that received SIGTERM.
func (r *run) stopAfter(name string, at, after time.Duration, code int) {
	if after == Forever {
		return // SIGKILL comes first
	}
	r.later(name, queuedEvent{event: kubelet.Event{At: at + after, Kind: kubelet.Exited, Container: name, Code: code}})
}
