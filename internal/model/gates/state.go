package gates

import (
	"slices"
	"time"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// A State is what is true within the containers of one pod.
type State struct {
	rules   *rules
	c       []container
	owed    []bool // per edge: From is back, and To does not know yet
	deleted bool
}

// rules are what does not change; all states of a pod share them.
type rules struct {
	containers []startup.Container
	edges      []edge
	gate       Gate
}

// An edge with the places of its ends; -1 if the pod has no such container.
type edge struct {
	startup.Edge
	from, to int
}

type container struct {
	phase       phase
	status      startup.Status
	sick        bool // it was healthy in this incarnation and is not now
	incarnation int
	since       time.Duration // it waits since then
	record      record
}

type phase int

const (
	down phase = iota
	waiting
	runs // its command does
)

// New is the state of a pod of which nothing has run yet.
func New(p startup.Plan, g Gate) State {
	p = p.Expand()
	r := &rules{containers: p.Containers, gate: g}
	for _, e := range p.Edges {
		_, from := p.Find(e.From)
		_, to := p.Find(e.To)
		r.edges = append(r.edges, edge{e, from, to})
	}
	return State{rules: r, c: make([]container, len(p.Containers)), owed: make([]bool, len(r.edges))}
}

// Follow takes what happened by an event of the kubelet into account, and
// returns it as it was within the containers.
func (s State) Follow(e kubelet.Event, happened startup.Timeline) (State, startup.Timeline) {
	if len(happened) == 0 {
		return s, nil
	}
	s = s.clone()
	// SIGKILL leaves a gate no time to say that it is gone.
	silent := e.Kind == kubelet.SandboxDied || e.Kind == kubelet.Exited && e.Code == Killed
	var out startup.Timeline
	for _, ev := range happened {
		out = append(out, s.see(ev, silent)...)
	}
	return s, out
}

// Killed is the exit code of what SIGKILL ended.
const Killed = 137

func (s State) clone() State {
	s.c, s.owed = slices.Clone(s.c), slices.Clone(s.owed)
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
	}
	return startup.Timeline{ev}
}

// newSandbox: what ran before has not run in this one. The volume with the
// published states is the pod's, and outlives its sandboxes.
func (s *State) newSandbox(at time.Duration) {
	for i := range s.c {
		c := &s.c[i]
		c.status, c.since, c.record.here = startup.Status{}, at, false
	}
	clear(s.owed)
}

// begin: the kubelet started the container. Its command runs at once, unless
// something in it waits.
func (s *State) begin(i int, ev startup.Event) startup.Timeline {
	c := &s.c[i]
	c.incarnation, c.sick = ev.Incarnation, false
	if s.mayRun(i, ev.At) && !s.sleeps(i) {
		return s.command(i, ev)
	}
	c.phase, c.since = waiting, ev.At
	c.record = record{status: startup.Status{Completed: c.status.Completed}, fresh: true, here: true}
	ev.What, ev.Detail = startup.IsWaiting, s.waitsFor(i)
	return startup.Timeline{ev}
}

// command: the command runs.
func (s *State) command(i int, ev startup.Event) startup.Timeline {
	c := &s.c[i]
	for n, e := range s.rules.edges {
		again := e.from == i && c.status.Ran
		if again && e.OnRestart != startup.Ignore && e.to >= 0 && s.c[e.to].status.Running {
			s.owed[n] = true
		}
	}
	c.phase = runs
	c.status.Observe(ev)
	c.record = record{status: c.status, fresh: true, here: true}
	return startup.Timeline{ev}
}

func (s *State) end(i int, ev startup.Event, silent bool) {
	c := &s.c[i]
	c.phase, c.since, c.sick = down, ev.At, false
	c.status.Observe(ev)
	c.record.fresh = false
	if !silent {
		c.record.status, c.record.ended = c.status, true
	}
	for n, e := range s.rules.edges {
		s.owed[n] = s.owed[n] && e.to != i
	}
}

// Release opens the gate of a container that waits.
func (s State) Release(name string, at time.Duration) (State, startup.Timeline) {
	i := s.find(name)
	s = s.clone()
	return s, s.command(i, startup.Event{Container: name, What: startup.IsStarted, At: at, Incarnation: s.c[i].incarnation})
}

// SetHealth makes a container whose command runs healthy, or unhealthy.
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

// Runs says whether the command of a container runs, not only its gate.
func (s State) Runs(name string) bool { i := s.find(name); return i >= 0 && s.c[i].phase == runs }

// Waits says whether a container runs, and its command does not.
func (s State) Waits(name string) bool { i := s.find(name); return i >= 0 && s.c[i].phase == waiting }

// Healthy says whether a container is healthy.
func (s State) Healthy(name string) bool { i := s.find(name); return i >= 0 && s.c[i].status.Healthy }

// Alive is what a liveness probe finds: the command runs and is not sick. One
// that is not healthy yet is alive.
func (s State) Alive(name string) bool { return s.Runs(name) && !s.c[s.find(name)].sick }

// CanBeHealthy says whether a container's command runs, and all that its health
// needs does too.
func (s State) CanBeHealthy(name string) bool {
	if !s.Runs(name) {
		return false
	}
	needs := s.rules.containers[s.find(name)].HealthNeeds
	return !slices.ContainsFunc(needs, func(n string) bool { return !s.Runs(n) })
}

// Deleted says whether the pod is to go.
func (s State) Deleted() bool { return s.deleted }

// RanOnce says whether the command of every container ran in this sandbox.
func (s State) RanOnce() bool {
	return !slices.ContainsFunc(s.c, func(c container) bool { return !c.status.Ran })
}

// Reached says whether From of the edge has reached the edge's condition.
func (s State) Reached(e startup.Edge) bool {
	i := s.find(e.From)
	return i >= 0 && s.c[i].status.Reached(e.After)
}
