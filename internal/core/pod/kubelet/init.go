package kubelet

import "slices"

// An initPlan is the result of the decisions about init containers.
type initPlan struct {
	initialized bool // the regular containers may start
	hopeless    bool // an init container failed and is not tried again: the pod has ended
	kills       []task
	starts      []task
	past        bool // a later init container has been started already, so the current one counts as done
}

// decideInit finds the next init container to start. It goes backwards through the list, because completed
// containers may have been removed from the runtime: the last container that was started is decisive.
//
// Two consequences are surprising. Once a regular container runs, the pod is initialized, and a dead sidecar no
// longer holds anything back. If no regular container runs, a sidecar holds the regular containers back only if
// it is the last one in the list: if a later init container has completed, initialization counts as finished.
// Source: kuberuntime_container.go computeInitContainerActions.
func (s *State) decideInit() initPlan {
	if s.spec.inits == 0 {
		return initPlan{initialized: true}
	}
	p := initPlan{initialized: s.plainRuns()}
	p.past = p.initialized
	for i := s.spec.inits - 1; i >= 0 && !p.hopeless; i-- {
		if s.spec.kind(i) == sidecar {
			s.decideSidecar(i, &p)
		} else {
			s.decideInitial(i, &p)
		}
	}
	if !p.past {
		p.start(0)
	}
	slices.Reverse(p.kills)
	slices.Reverse(p.starts)
	return p
}

// decideSidecar restarts a sidecar whenever it does not run. The next container starts when the sidecar runs and
// has passed its startup probe, if it has one. Readiness has no influence, and a failed liveness probe does not
// hold the next container back.
func (s *State) decideSidecar(i int, p *initPlan) {
	c := &s.c[i]
	switch {
	case c.life.run == absent && !p.past:
		return
	case c.life.run != running:
		p.start(i)
	case c.probes.failed() == Startup:
		p.kill(i)
		p.start(i)
	case s.spec.hasProbe(i, startupProbe) && c.probes.of[startupProbe].result != success:
		// The sidecar does not count as started yet.
	default:
		s.passed(i, p)
		if c.probes.failed() == Liveness {
			p.kill(i)
			p.start(i)
		}
	}
	p.past = true
}

func (p *initPlan) start(i int) { p.starts = append(p.starts, task{kind: startInit, i: i}) }

func (p *initPlan) kill(i int) { p.kills = append(p.kills, task{kind: killOne, i: i}) }

// decideInitial runs a regular init container until it completes. With Never, one that failed ends the pod;
// usually the phase Failed has already ended it.
func (s *State) decideInitial(i int, p *initPlan) {
	c := &s.c[i]
	if c.life.run == absent || p.past {
		return
	}
	switch {
	case c.life.run == running:
	case c.life.code == 0:
		s.passed(i, p)
	case s.spec.policy(i) == Never:
		p.hopeless = true
	default:
		p.start(i)
	}
	p.past = true
}

// passed continues after init container i: the next one starts, or initialization is finished.
func (s *State) passed(i int, p *initPlan) {
	switch {
	case i == s.spec.inits-1:
		p.initialized = true
	case !p.past:
		p.start(i + 1)
	}
}
