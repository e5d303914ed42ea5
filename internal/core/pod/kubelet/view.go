package kubelet

import (
	"slices"
	"time"
)

// Done reports whether the pod has ended: nothing runs, and nothing will run again.
func (s State) Done() bool { return s.pass.mode == done }

// Final reports whether the kubelet stops the pod for good, or has done so: no container is started any more.
func (s State) Final() bool {
	return s.pass.mode == terminating || s.pass.mode == done || s.ending.stage == stopped
}

// Now returns the time of the last event.
func (s State) Now() time.Duration { return s.now }

// A View is the state of one container as others can see it.
type View struct {
	Running     bool
	Exited      bool
	Code        int  // exit code of the latest exit
	Incarnation int  // number of the latest run, from 0; -1 if it was never started
	Started     bool // its startup probe has succeeded, or it has none
	Ready       bool
	Starting    bool // its image is pulled, or it is launched
	Unsteady    bool // it is being started or stopped, or its startup or liveness probe counts failures
	Patient     bool // its startup probe has not succeeded yet, and never fails for good
}

// View returns the visible state of the container of that name; the zero value if there is none.
func (s State) View(name string) View {
	i := s.spec.find(name)
	if i < 0 {
		return View{}
	}
	c := &s.c[i]
	return View{Running: c.life.run == running, Exited: c.life.run == exited, Code: c.life.code, Incarnation: c.life.incarnation,
		Started: c.probes.started, Ready: c.shown.ready, Unsteady: c.unsteady(),
		Starting: c.start.step == pulling || c.start.step == launching,
		Patient:  c.probes.seen && !c.probes.started && s.spec.probes[i][startupProbe].Failures == neverFails}
}

func (c *container) unsteady() bool {
	failing := slices.ContainsFunc(c.probes.of[:readinessProbe], func(p probe) bool { return p.row > 0 && p.last == failure || p.result == failure })
	return c.start.step != notStarting || c.killing.stage != notKilling || failing
}

// Running returns the names of the containers that run, in the pod's order.
func (s State) Running() []string {
	var out []string
	for i, c := range s.c {
		if c.life.run == running {
			out = append(out, s.name(i))
		}
	}
	return out
}

// GraceEnd returns the time at which the grace period of a container ends. It returns false unless the container
// is being stopped and is a sidecar or has a preStop hook. SIGKILL may follow up to two seconds later, because
// the kubelet measures hooks in whole seconds and leaves the container at least two seconds after SIGTERM.
func (s State) GraceEnd(name string) (time.Duration, bool) {
	i := s.spec.find(name)
	if i < 0 || s.c[i].killing.stage == notKilling || s.spec.containers[i].PreStop == NoHandler && s.spec.kind(i) != sidecar {
		return 0, false
	}
	return s.c[i].killing.graceEnd, true
}

// Open returns the actions that have not been answered yet. The next event can only be an answer to one of these,
// or an event that is no answer: time, the exit of a running container, a deletion, or the death of the sandbox.
func (s State) Open() []Action {
	var open []Action
	if s.makesSandbox() {
		open = append(open, Action{Kind: CreateSandbox})
	}
	for i := range s.c {
		open = append(open, s.openOf(i)...)
	}
	return open
}

func (s State) openOf(i int) (open []Action) {
	c, name := &s.c[i], s.name(i)
	switch c.start.step {
	case pulling:
		open = append(open, Action{Kind: Pull, Container: name})
	case launching:
		open = append(open, Action{Kind: Start, Container: name})
	case inHook:
		open = append(open, Action{Kind: RunHook, Container: name, Which: PostStart})
	}
	switch c.killing.stage {
	case inPreStop:
		hook := s.spec.containers[i]
		open = append(open, Action{Kind: RunHook, Container: name, Which: PreStop, At: c.killing.since, Handler: hook.PreStop, Timeout: hook.PreStopSleep})
	case termed:
		open = append(open, Action{Kind: Stop, Container: name, At: c.killing.since})
	case sigkilled:
		open = append(open, Action{Kind: Kill, Container: name})
	}
	for w, p := range c.probes.of {
		if p.expires != never {
			open = append(open, Action{Kind: RunProbe, Container: name, Which: probeKinds[w], Handler: s.spec.probes[i][w].Handler})
		}
	}
	return open
}
