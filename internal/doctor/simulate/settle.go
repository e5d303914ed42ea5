package simulate

import (
	"cmp"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// settle makes all transitions within the containers that are possible at that time.
func (r *run) settle(at time.Duration) {
	for again := true; again; {
		again = false
		for _, c := range r.Plan.Containers {
			again = r.settleOne(c.Name, at) || again
		}
		again = r.meetObligations(at) || again
	}
}

// settleOne makes one transition in a container. It returns false if none is possible.
func (r *run) settleOne(name string, at time.Duration) bool {
	l := r.lives[name]
	switch {
	case r.gates.Waits(name) && r.gates.GivesUp(name, at):
		r.exit(name, at, 1)
	case r.gates.Waits(name) && !l.stop && (l.asleep <= at || r.gates.LoopSucceeded(name)) && r.gates.MayRun(name, at):
		var happened startup.Timeline
		r.gates, happened = r.gates.Release(name, at)
		r.note(happened)
	case l.healthy != nil && *l.healthy <= at && !r.gates.Healthy(name) && r.gates.CanBeHealthy(name):
		l.healthy = nil
		r.setHealth(name, true, at)
	case l.hook && r.hookReturns(name):
		l.hook = false
		r.step(kubelet.Event{At: at, Kind: kubelet.HookReturned, Container: name, Which: kubelet.PostStart, OK: true})
	case l.probe && r.gates.StartedUp(name):
		l.probe = false
		r.step(kubelet.Event{At: at, Kind: kubelet.ProbeAnswered, Container: name, Which: kubelet.Startup, OK: true})
	case l.stays != nil && *l.stays <= at && !r.holdsStop(name, at):
		l.stays = nil
		r.step(kubelet.Event{At: at, Kind: kubelet.HookReturned, Container: name, Which: kubelet.PreStop, OK: true})
	case l.stop && !r.holdsStop(name, at):
		l.stop = false
		r.stop(name, at)
	case r.gates.Runs(name) && len(r.of(name).EndsWith) > 0 && !slices.ContainsFunc(r.of(name).EndsWith, r.mayRunAgain):
		r.exit(name, at, 0)
	default:
		return false
	}
	return true
}

// holdsStop reports whether the gate or the preStop hook of a container still waits for those that need it.
func (r *run) holdsStop(name string, at time.Duration) bool {
	return at < r.lives[name].holds && r.gates.HoldsStop(name)
}

// hold begins the time for which the gate or the preStop hook of a container waits for those that need it.
func (r *run) hold(a kubelet.Action) {
	l := r.lives[a.Container]
	l.holds = gates.HoldsUntil(r.Pod, r.kubelet, a)
	r.later(a.Container, queuedEvent{at: l.holds, kind: wakes})
}

// mayRunAgain reports whether a container has not ended, or will be restarted by the kubelet.
func (r *run) mayRunAgain(name string) bool {
	c, _ := r.Plan.Find(name)
	view := r.kubelet.View(name)
	return !view.Exited || c.Restart == startup.Always || c.Restart == startup.OnFailure && view.Code != 0
}

func (r *run) hookReturns(name string) bool {
	return r.gates.Healthy(cmp.Or(r.of(name).PostStart.Polls, name))
}

// stop delivers SIGTERM to the command, or to the gate or shell in front of it.
func (r *run) stop(name string, at time.Duration) {
	switch {
	case r.gates.IgnoresStop(name): // a shell as PID 1 has no handler for SIGTERM
	case r.gates.Waits(name):
		r.exit(name, at, 143)
	default:
		r.stopAfter(name, at, r.of(name).Stops, 0)
	}
}

func (r *run) exit(name string, at time.Duration, code int) {
	r.step(kubelet.Event{At: at, Kind: kubelet.Exited, Container: name, Code: code})
}

// meetObligations handles one gate whose dependency has restarted: the gate notifies its command, or ends it. If
// there is no such gate, meetObligations returns false.
func (r *run) meetObligations(at time.Duration) bool {
	for _, o := range r.gates.Obligations() {
		switch {
		case !o.Enforced:
			continue
		case o.Edge.OnRestart == startup.RestartTo:
			r.exit(o.Edge.To, at, 1)
		default:
			var happened startup.Timeline
			r.gates, happened = r.gates.Notify(o.Edge, at)
			r.note(happened)
		}
		return true
	}
	return false
}
