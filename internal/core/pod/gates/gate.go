package gates

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Gate describes the behaviour of gates. The zero value is the behaviour of the agent's gates; the other
// values are faults that the verifier must find.
type Gate struct {
	// AcceptsStale: the gate accepts a record of any incarnation and sandbox.
	AcceptsStale bool

	// OnlyFirst: the gate waits only at the first start of its container in a sandbox.
	OnlyFirst bool

	// StopsAtOnce: the gate passes SIGTERM on without waiting for its dependents.
	StopsAtOnce bool
}

// A record is the published state of a container.
type record struct {
	status startup.Status
	fresh  bool // its writer is alive and holds the lock on the file
	here   bool // it was written in this sandbox
	ended  bool // it records the end of the container
}

// sleeps reports whether container i's command begins some time after its container and does not wait for
// the state of others: it sleeps, or it polls a limited number of times.
func (s State) sleeps(i int) bool {
	return slices.ContainsFunc(s.rules.edges, func(e edge) bool {
		return e.to == i && (e.By == startup.Sleep || e.By == startup.BoundedLoop && !s.reached(e))
	})
}

func (s State) reached(e edge) bool { return e.from >= 0 && s.c[e.from].status.Reached(e.After) }

// LoopSucceeded reports whether a container with bounded loops need not wait until they give up, because
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

// inside reports whether a wait inside To keeps the edge, without the kubelet.
func (e edge) inside() bool { return e.By == startup.Gate || e.probes() }

// probes reports whether To sends requests to From, and reads no record of From.
func (e edge) probes() bool { return e.By == startup.HealthLoop || e.By == startup.Wrapper }

// MayRun reports whether the gate of a container opens at that time. For a container that only sleeps it is
// always true: the caller models the sleep.
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

// waitsFor says in words why a container waits.
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

// decide applies the rule of an edge to the status of From that To can see.
func (s State) decide(e edge, at time.Duration) startup.Decision {
	waited := time.Duration(0)
	if c := s.c[e.to]; c.phase == waiting {
		waited = at - c.since
	}
	return e.Decide(s.seen(e), waited)
}

// seen returns the status of From that To can see. If the writer of a record is dead and the record does not
// contain the end, the container was killed. A record of another sandbox is ignored. That a container
// completed stays true after the death of the writer.
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

// Next returns the next time at which the timeout of a gate expires.
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

// HoldsStop reports whether a container keeps running after SIGTERM, because its gate passes the signal on
// only when all its dependents have ended.
func (s State) HoldsStop(name string) bool {
	if !s.deleted || s.rules.gate.StopsAtOnce {
		return false
	}
	for _, e := range s.rules.edges {
		if e.From == name && e.By == startup.Gate && e.to >= 0 && s.c[e.to].phase != down {
			return true
		}
	}
	return false
}

// OutlastGrace returns the containers that certainly still run when the grace period of a deleted pod ends,
// and with it the kubelet's order of stops. The reason is a preStop that sleeps too long: the container's
// own, or that of a container that stops before it, by the plan's gates or by the kubelet's order of
// sidecars.
func OutlastGrace(pod kubelet.Pod, p startup.Plan) map[string]bool {
	before := map[string][]string{} // by container: the containers that end before it
	for _, e := range p.Expand().Edges {
		if e.By == startup.Gate && e.After != startup.Completed {
			before[e.From] = append(before[e.From], e.To)
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
			late := pod.PreStopOutlasts(c.Name) || slices.ContainsFunc(before[c.Name], func(name string) bool { return out[name] })
			if late && !out[c.Name] {
				out[c.Name], grew = true, true
			}
		}
	}
	return out
}

// IgnoresStop reports whether SIGTERM does not end a container: a shell that waits in a loop ignores the
// signal, and the command after the loop never gets it.
func (s State) IgnoresStop(name string) bool {
	i := s.find(name)
	return i >= 0 && (s.c[i].deaf || s.waitsDeaf(i))
}

func (s State) waitsDeaf(i int) bool {
	return s.c[i].phase == waiting && !slices.ContainsFunc(s.rules.edges, func(e edge) bool {
		return e.to == i && (e.By == startup.Gate || e.By == startup.Wrapper)
	})
}

// An Obligation is a restart of From that To must follow and has not followed yet.
type Obligation struct {
	Edge     startup.Edge
	Enforced bool // by a gate, which sees the restart
}

// Obligations returns the restarts that dependents have not followed yet.
func (s State) Obligations() []Obligation {
	var out []Obligation
	for n, e := range s.rules.edges {
		if s.pending[n] {
			out = append(out, Obligation{Edge: e.Edge, Enforced: e.By == startup.Gate})
		}
	}
	return out
}

// Notify tells To of the edge that From has restarted.
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
