package kubelet

import (
	"slices"
	"time"
)

// A State is the kubelet's state of a pod. The zero value is of no use.
type State struct {
	spec    *spec
	now     time.Duration
	worker  worker
	sandbox sandbox
	deleted time.Duration // grace period of the deletion; never: not deleted
	address bool          // the sandbox has an IP
	status  Status        // as published
	final   Phase         // Succeeded or Failed, once that is known; not published before all has stopped
	ending  ending
	relist  time.Duration // the next one that will see something new; never: nothing is
	probing time.Duration // the probes' clocks run since then; never: not yet
	passes  int           // that have begun; for tests
	c       []container   // as spec.containers
	out     []Action      // of the step under way
}

type sandbox int

const (
	noSandbox sandbox = iota
	sandboxReady
	deadSandbox
)

// A container is the kubelet's state of one container.
type container struct {
	run         run
	code        int
	incarnation int // -1: never started
	startedAt   time.Duration
	finishedAt  time.Duration // of the last one that ended; never: none
	known       time.Duration // finishedAt as the pass under way saw it
	here        bool          // started in this sandbox
	step        step          // of a start under way
	crashes     backOff
	pulls       backOff
	killing     killing
	seen        bool // this incarnation is in the published status
	ready       bool
	started     bool // as in the API: its startup probe, if any, succeeded
	shown       bool // the status before had it, or the one before it, as started
	probes      [3]probe
}

// run is the state of a container in the runtime.
type run int

const (
	absent run = iota
	running
	exited
)

// never is a time that does not come.
const never = time.Duration(-1)

// New is the state of a pod that the kubelet has not seen yet: it waits for Added.
func New(p Pod, v Version) State {
	s := State{spec: newSpec(p, v), deleted: never, probing: never, relist: never}
	s.worker.wake, s.worker.retry = never, never
	s.c = make([]container, len(s.spec.containers))
	for i := range s.c {
		s.c[i] = container{incarnation: -1, finishedAt: never, known: never}
		s.c[i].killing.deadline = never
		s.c[i].resetProbes()
	}
	s.status = Status{Phase: Pending}
	return s
}

// Step returns the state after an event, and what the kubelet then does. First
// it does what was due before the event.
func (s State) Step(e Event) (State, []Action) {
	s.c = slices.Clone(s.c)
	s.worker.tasks = slices.Clone(s.worker.tasks)
	s.out = nil
	s.passTime(e.At)
	s.observe(e)
	s.passTime(s.now) // what became due by the event
	out := s.out
	s.out = nil
	return s, out
}

// observe takes an event into account.
func (s *State) observe(e Event) {
	if s.worker.mode == done {
		return
	}
	i := s.spec.find(e.Container)
	switch e.Kind {
	case Added:
		s.wakeAt(s.now)
	case SandboxReady:
		s.sandboxAnswered(e.OK)
	case SandboxDied:
		s.sandboxDied()
	case SandboxLost:
		s.sandboxLost()
	case Deleted:
		s.delete(e.Grace)
	}
	if i < 0 {
		return
	}
	switch e.Kind {
	case Pulled:
		s.pulled(i, e.OK)
	case Started:
		s.launched(i, e.OK)
	case HookReturned:
		s.hookReturned(i, e.Which, e.OK)
	case ProbeAnswered:
		s.probeAnswered(i, e.Which, e.OK)
	case Exited:
		if s.c[i].run == running {
			s.exited(i, e.Code)
		}
	}
}

// exited notes the end of a container that ran.
func (s *State) exited(i, code int) {
	c := &s.c[i]
	c.run, c.code, c.finishedAt = exited, code, s.now
	c.seen, c.started = false, false
	c.resetProbes()
	if c.step == inHook && s.spec.containers[i].PostStart == Exec {
		// The hook was a process of this container and died with it.
		s.hookReturned(i, PostStart, false)
	}
	s.changed()
	s.killed(i)
	s.drive()
}

// sandboxDied: the containers die with the sandbox.
func (s *State) sandboxDied() {
	if s.sandbox != sandboxReady {
		return
	}
	s.sandboxLost()
	for i := range s.c {
		if s.c[i].run == running {
			s.exited(i, 137)
		}
	}
}

// sandboxLost: containers that run are stopped, in order, before there is a new
// sandbox. The API keeps the old IP until then.
// Source: kuberuntime_manager.go SyncPod step 2; pleg/generic.go getPodIPs.
func (s *State) sandboxLost() {
	if s.sandbox == sandboxReady {
		s.sandbox = deadSandbox
		s.changed()
	}
}

func (s *State) do(a Action) {
	a.At = s.now
	s.out = append(s.out, a)
}

func (s *State) name(i int) string { return s.spec.containers[i].Name }

// plainRuns reports whether any plain container runs.
func (s *State) plainRuns() bool {
	return slices.ContainsFunc(s.c[s.spec.inits:], func(c container) bool { return c.run == running })
}
