package gates

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Gate is a variant of the behaviour of gates. The zero value stands for the behaviour of the agent's gates.
// The other values are faults that the verifier must find.
type Gate struct {
	// AcceptsStale means that the gate accepts a record of any incarnation and sandbox.
	AcceptsStale bool

	// OnlyFirst means that the gate waits only at the first start of its container in a sandbox.
	OnlyFirst bool

	// StopsAtOnce means that the gate passes SIGTERM on without waiting for the containers that depend on it.
	StopsAtOnce bool
}

// A record is the published state of a container.
type record struct {
	status startup.Status
	fresh  bool // the process that wrote it is alive and holds the lock on the file
	here   bool // it was written in this sandbox
	ended  bool // it records the end of the container
}

// sleeps reports whether the command of container i begins later than the container, without waiting for the
// state of another container: it sleeps first, or polls a limited number of times.
func (s State) sleeps(i int) bool {
	return slices.ContainsFunc(s.rules.edges, func(e edge) bool {
		return e.to == i && (e.By == startup.Sleep || e.By == startup.BoundedLoop && !s.reached(e))
	})
}

func (s State) reached(e edge) bool { return e.from >= 0 && s.c[e.from].status.Reached(e.After) }

// LoopSucceeded reports whether a container with bounded loops is ready to continue before they give up, because
// everything that they probe has reached its condition.
func (s State) LoopSucceeded(name string) bool {
	loops := false
	for _, e := range s.rules.edges {
		if e.To == name && (e.By == startup.Sleep || e.By == startup.BoundedLoop && !s.reached(e)) {
			return false
		}
		loops = loops || e.To == name && e.By == startup.BoundedLoop
	}
	return loops
}

// inside reports whether the edge is enforced by a wait inside the container e.To.
func (e edge) inside() bool { return e.By == startup.Gate || e.probes() }

// probes reports whether the container e.To sends requests to e.From instead of reading its record.
func (e edge) probes() bool { return e.By == startup.HealthLoop || e.By == startup.Wrapper }

// MayRun reports whether the gate of a container may open at that time. It is true for a container that only
// sleeps, because the caller models sleeps.
func (s State) MayRun(name string, at time.Duration) bool { return s.mayRun(s.find(name), at) }

func (s State) mayRun(i int, at time.Duration) bool {
	if s.rules.gate.OnlyFirst && s.c[i].status.Ran {
		return true
	}
	for _, e := range s.rules.edges {
		if e.to == i && e.inside() && !s.decide(e, at).Open() {
			return false
		}
	}
	return true
}

// waitsFor returns a description of what a container waits for.
func (s State) waitsFor(i int) string {
	for _, e := range s.rules.edges {
		if e.to == i && e.inside() && !s.decide(e, s.c[i].since).Open() {
			return fmt.Sprintf("until %s is %s", e.From, e.After)
		}
	}
	for _, e := range s.rules.edges {
		if e.to == i && e.By == startup.BoundedLoop && !s.reached(e) {
			return fmt.Sprintf("until %s is %s, or it gives up", e.From, e.After)
		}
	}
	return "asleep"
}

// decide returns the decision about an edge, from the status of e.From that e.To can see.
func (s State) decide(e edge, at time.Duration) startup.Decision {
	waited := time.Duration(0)
	if c := s.c[e.to]; c.phase == waiting {
		waited = at - c.since
	}
	return e.Decide(s.seen(e), waited)
}

// seen returns the status of e.From that e.To can see. A record of another sandbox is ignored. If the process
// that wrote a record is dead and the record does not contain the end of the container, the container was
// killed. A completion in the record remains valid after the death of that process.
func (s State) seen(e edge) startup.Status {
	if e.from < 0 {
		return startup.Status{Absent: true}
	}
	if e.probes() {
		return s.c[e.from].status // a dead container does not answer
	}
	r := s.c[e.from].record
	switch {
	case s.rules.gate.AcceptsStale:
		return r.status
	case !r.here:
		return startup.Status{}
	case !r.fresh && !r.ended:
		return startup.Status{Failed: true, Completed: r.status.Completed}
	default:
		return r.status
	}
}

// GivesUp reports whether the wait of a container's gate has timed out, so that the gate ends with an error.
func (s State) GivesUp(name string, at time.Duration) bool {
	for _, e := range s.rules.edges {
		if e.To == name && e.inside() && s.decide(e, at) == startup.GivenUp {
			return true
		}
	}
	return false
}

// Next returns the next time at which the timeout of a waiting gate expires; false if there is none.
func (s State) Next(now time.Duration) (time.Duration, bool) {
	next, any := time.Duration(0), false
	for _, e := range s.rules.edges {
		if e.to < 0 || !e.inside() || e.Timeout <= 0 || s.c[e.to].phase != waiting {
			continue
		}
		if at := s.c[e.to].since + e.Timeout; at > now && (!any || at < next) {
			next, any = at, true
		}
	}
	return next, any
}

// HoldsStop reports whether a container keeps running for containers that depend on it, because its gate or its preStop
// hook waits until they have ended. It does so for [StopLimit] at most.
func (s State) HoldsStop(name string) bool { return len(s.HeldBy(name)) > 0 }

// HeldBy returns the containers because of which [State.HoldsStop] is true.
func (s State) HeldBy(name string) (out []string) {
	if !s.deleted || s.rules.gate.StopsAtOnce {
		return nil
	}
	for _, e := range s.rules.edges {
		if e.From == name && e.By == startup.Gate && e.to >= 0 && s.c[e.to].phase != down && !s.leavesFirst(e.from) {
			out = append(out, e.To)
		}
	}
	if i := s.find(name); i >= 0 {
		for _, other := range s.rules.containers[i].Outlives {
			if s.Runs(other) || s.Waits(other) {
				out = append(out, other)
			}
		}
	}
	return out
}

// HoldsUntil returns the time until which a container's gate or preStop hook waits for the containers that depend on it. a
// is the open action of the kubelet by which the container got SIGTERM, or which runs the hook. What a preStop hook took
// before SIGTERM counts as a part of the grace period.
func HoldsUntil(pod kubelet.Pod, k kubelet.State, a kubelet.Action) time.Duration {
	grace := pod.GracePeriod()
	if end, stops := k.GraceEnd(a.Container); stops && a.Kind == kubelet.Stop && pod.HasPreStop(a.Container) {
		grace = max(end-a.At, 0)
	}
	return a.At + contract.StopLimit(grace)
}

// StopLimit returns the longest time for which a container's gate or preStop hook waits, after the stop of the pod began,
// for the containers that depend on it.
func StopLimit(pod kubelet.Pod) time.Duration { return contract.StopLimit(pod.GracePeriod()) }

// OrderStops reports whether the grace period is long enough for gates and preStop hooks to order stops.
func OrderStops(pod kubelet.Pod) bool { return contract.OrdersStops(pod.GracePeriod()) }

func (s State) leavesFirst(i int) bool { return i >= 0 && s.rules.containers[i].LeavesFirst() }

// OutlastGrace returns the containers that are certain to be still running when the grace period of a deleted
// pod ends; neither the kubelet nor gates and hooks then keep the order of stops any longer. The cause is a preStop hook
// that sleeps too long. The hook belongs to the container itself, or to one that a gate, a hook or the kubelet's order of
// sidecars stops earlier.
func OutlastGrace(pod kubelet.Pod, p startup.Plan) map[string]bool {
	before := endBefore(p)
	held := map[string]bool{} // containers for which a gate or a hook keeps others running, until StopLimit
	for _, names := range before {
		for _, name := range names { // in any order
			held[name] = true
		}
	}
	all := slices.Concat(pod.Init, pod.Containers)
	for i, c := range pod.Init {
		for _, later := range all[i+1:] {
			if c.Restart == kubelet.Always {
				before[c.Name] = append(before[c.Name], later.Name)
			}
		}
	}
	out := map[string]bool{}
	for grew := true; grew; {
		grew = false
		for _, c := range all {
			sleeps := pod.PreStopSleep(c.Name)
			late := pod.PreStopOutlasts(c.Name) || held[c.Name] && sleeps > 0 && sleeps >= StopLimit(pod) ||
				slices.ContainsFunc(before[c.Name], func(name string) bool { return out[name] })
			if late && !out[c.Name] {
				out[c.Name], grew = true, true
			}
		}
	}
	return out
}

// endBefore returns, for each container that a gate or a preStop hook keeps running for others, those others.
func endBefore(p startup.Plan) map[string][]string {
	before := map[string][]string{}
	for _, c := range p.Containers {
		before[c.Name] = slices.Clone(c.Outlives)
	}
	for _, e := range p.Expand().Edges {
		if e.By == startup.Gate && e.After != startup.Completed {
			before[e.From] = append(before[e.From], e.To)
		}
	}
	return before
}

// IgnoresStop reports whether SIGTERM does not end a container. While a shell waits in a loop it ignores the
// signal, and the command after the loop never receives it.
func (s State) IgnoresStop(name string) bool {
	i := s.find(name)
	return i >= 0 && (s.c[i].deaf || s.waitsDeaf(i))
}

func (s State) waitsDeaf(i int) bool {
	return s.c[i].phase == waiting && !slices.ContainsFunc(s.rules.edges, func(e edge) bool {
		return e.to == i && (e.By == startup.Gate || e.By == startup.Wrapper)
	})
}

// An Obligation is a restart of Edge.From to which Edge.To must react and has not reacted yet.
type Obligation struct {
	Edge     startup.Edge
	Enforced bool // Edge.To has a gate, which will react to the restart
}

// Obligations returns the restarts to which the dependent containers have not reacted yet.
func (s State) Obligations() []Obligation {
	var out []Obligation
	for n, e := range s.rules.edges {
		if s.pending[n] {
			out = append(out, Obligation{Edge: e.Edge, Enforced: e.By == startup.Gate})
		}
	}
	return out
}

// Notify records that e.To was notified of a restart of e.From, and returns that event.
func (s State) Notify(e startup.Edge, at time.Duration) (State, startup.Timeline) {
	s = s.clone()
	for n, o := range s.rules.edges {
		if o.Edge == e {
			s.pending[n] = false
		}
	}
	to := s.c[s.find(e.To)]
	return s, startup.Timeline{{Container: e.To, What: startup.IsNotified, At: at, Incarnation: to.incarnation, Detail: e.From + " is back"}}
}
