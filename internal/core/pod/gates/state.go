package gates

import (
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A State is the state inside the containers of a pod.
type State struct {
	rules   *rules
	c       []container
	pending []bool // per edge: the container From has restarted, and To has not reacted yet
	deleted bool
}

// rules holds the parts of a state that never change. All states of a pod share it.
type rules struct {
	containers []startup.Container
	edges      []edge
	gate       Gate
}

// An edge is a [startup.Edge] with the indexes of its containers. An index is -1 if the pod has no such
// container.
type edge struct {
	startup.Edge
	from, to int
}

type container struct {
	phase       phase
	status      startup.Status
	sick        bool // it was healthy in this incarnation, and is not any more
	deaf        bool // it ignored SIGTERM because a shell was waiting; SIGTERM is sent only once
	incarnation int
	since       time.Duration // when the wait began
	record      record
}

type phase int

const (
	down phase = iota
	waiting
	runs // the command runs
)

// New returns the state of a pod in which nothing has run yet.
func New(p startup.Plan, g Gate) State {
	p = p.Expand()
	r := &rules{containers: p.Containers, gate: g}
	for _, e := range p.Edges {
		_, from := p.Find(e.From)
		_, to := p.Find(e.To)
		r.edges = append(r.edges, edge{e, from, to})
	}
	return State{rules: r, c: make([]container, len(p.Containers)), pending: make([]bool, len(r.edges))}
}

// Follow applies the timeline that results from an event of the kubelet. It returns the timeline completed with
// the events inside the containers.
func (s State) Follow(e kubelet.Event, happened startup.Timeline) (State, startup.Timeline) {
	if len(happened) == 0 {
		return s, nil
	}
	s = s.clone()
	// After SIGKILL a gate does not publish its end.
	silent := e.Kind == kubelet.SandboxDied || e.Kind == kubelet.Exited && e.Code == Killed
	var out startup.Timeline
	for _, ev := range happened {
		out = append(out, s.see(ev, silent)...)
	}
	return s, out
}

// Killed is the exit code of a container that was ended by SIGKILL.
const Killed = 137

func (s State) clone() State {
	s.c, s.pending = slices.Clone(s.c), slices.Clone(s.pending)
	return s
}

func (s *State) see(ev startup.Event, silent bool) startup.Timeline {
	switch ev.What {
	case startup.NewSandbox:
		s.newSandbox(ev.At)
	case startup.PodDeleted:
		s.deleted = true
	}
	i := s.find(ev.Container)
	if i < 0 {
		return startup.Timeline{ev}
	}
	switch ev.What {
	case startup.IsStarted:
		return s.begin(i, ev)
	case startup.IsCompleted, startup.HasFailed:
		s.end(i, ev, silent)
	case startup.IsWaiting:
		s.c[i].since = ev.At
	case startup.IsStopping:
		s.c[i].deaf = s.waitsDeaf(i)
	}
	return startup.Timeline{ev}
}

// newSandbox resets the containers, because none has run in the new sandbox. The published states remain,
// because their volume belongs to the pod and not to the sandbox.
func (s *State) newSandbox(at time.Duration) {
	for i := range s.c {
		c := &s.c[i]
		c.status, c.since, c.record.here = startup.Status{}, at, false
	}
	clear(s.pending)
}

// begin handles the start of a container by the kubelet. The container's command starts at once, unless a gate or
// a loop in the container waits.
func (s *State) begin(i int, ev startup.Event) startup.Timeline {
	c := &s.c[i]
	c.incarnation, c.sick, c.deaf = ev.Incarnation, false, false
	if s.mayRun(i, ev.At) && !s.sleeps(i) {
		return s.command(i, ev)
	}
	c.phase, c.since = waiting, ev.At
	c.record = record{status: startup.Status{Completed: c.status.Completed}, fresh: true, here: true}
	ev.What, ev.Detail = startup.IsWaiting, s.waitsFor(i)
	return startup.Timeline{ev}
}

// command handles the start of the command of a container.
func (s *State) command(i int, ev startup.Event) startup.Timeline {
	c := &s.c[i]
	for n, e := range s.rules.edges {
		again := e.from == i && c.status.Ran
		if again && e.OnRestart != startup.Ignore && e.to >= 0 && s.c[e.to].status.Running {
			s.pending[n] = true
		}
	}
	c.phase = runs
	c.status.Observe(ev)
	c.record = record{status: c.status, fresh: true, here: true}
	return startup.Timeline{ev}
}

func (s *State) end(i int, ev startup.Event, silent bool) {
	c := &s.c[i]
	c.phase, c.since, c.sick, c.deaf = down, ev.At, false, false
	c.status.Observe(ev)
	c.record.fresh = false
	if !silent {
		c.record.status, c.record.ended = c.status, true
	}
	for n, e := range s.rules.edges {
		s.pending[n] = s.pending[n] && e.to != i
	}
}

// Release lets the command of a waiting container start.
func (s State) Release(name string, at time.Duration) (State, startup.Timeline) {
	i := s.find(name)
	s = s.clone()
	return s, s.command(i, startup.Event{Container: name, What: startup.IsStarted, At: at, Incarnation: s.c[i].incarnation})
}

// SetHealth makes a container healthy or unhealthy. Its command must be running.
func (s State) SetHealth(name string, healthy bool, at time.Duration) (State, startup.Timeline) {
	s = s.clone()
	c := &s.c[s.find(name)]
	ev := startup.Event{Container: name, What: startup.IsHealthy, At: at, Incarnation: c.incarnation}
	if !healthy {
		ev.What = startup.IsUnhealthy
	}
	c.status.Observe(ev)
	c.record.status.Observe(ev)
	c.sick = !healthy
	return s, startup.Timeline{ev}
}

func (s State) find(name string) int {
	return slices.IndexFunc(s.rules.containers, func(c startup.Container) bool { return c.Name == name })
}

// Runs reports whether the command of a container runs, not only its gate.
func (s State) Runs(name string) bool { i := s.find(name); return i >= 0 && s.c[i].phase == runs }

// Waits reports whether a container runs but its command does not yet.
func (s State) Waits(name string) bool { i := s.find(name); return i >= 0 && s.c[i].phase == waiting }

// Probe returns the result of a probe by the kubelet. The second result is false if the probe blocks, because
// the gate does not answer yet.
func (s State) Probe(a kubelet.Action) (ok, answered bool) {
	switch {
	case a.Which == kubelet.Startup && a.Handler == kubelet.Gate:
		up := s.StartedUp(a.Container)
		return up, up
	case a.Which == kubelet.Liveness:
		return s.Alive(a.Container) || a.Handler == kubelet.Gate && s.Waits(a.Container), true
	}
	return s.Healthy(a.Container), true
}

// StartedUp returns the result of the startup probe that a container's gate answers. It is true if the command
// runs and its own startup probe, if any, has succeeded.
func (s State) StartedUp(name string) bool {
	return s.Runs(name) && (s.rules.containers[s.find(name)].Health != startup.StartupProbe || s.Healthy(name))
}

// Healthy reports whether the command of a container is healthy.
func (s State) Healthy(name string) bool { i := s.find(name); return i >= 0 && s.c[i].status.Healthy }

// Alive returns the result of a liveness probe. It is true if the command runs and has not become unhealthy after
// it was healthy.
func (s State) Alive(name string) bool { return s.Runs(name) && !s.c[s.find(name)].sick }

// CanBeHealthy reports whether two things are true: the command of a container runs, and the commands of all
// containers on which its health depends run.
func (s State) CanBeHealthy(name string) bool {
	if !s.Runs(name) {
		return false
	}
	needs := s.rules.containers[s.find(name)].HealthNeeds
	return !slices.ContainsFunc(needs, func(n string) bool { return !s.Runs(n) })
}

// Deleted reports whether the pod was deleted.
func (s State) Deleted() bool { return s.deleted }

// RanOnce reports whether the command of every container has been started in this sandbox.
func (s State) RanOnce() bool {
	return !slices.ContainsFunc(s.c, func(c container) bool { return !c.status.Ran })
}

// Reached reports whether the container e.From has reached the edge's condition.
func (s State) Reached(e startup.Edge) bool {
	i := s.find(e.From)
	return i >= 0 && s.c[i].status.Reached(e.After)
}
