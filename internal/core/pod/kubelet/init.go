package kubelet

import "slices"

// An initPlan says what is to be done with the init containers.
type initPlan struct {
	initialized bool // the plain containers may be looked at
	hopeless    bool // one failed and is not tried again: the pod is over
	kills       []task
	starts      []task
	past        bool // a later init container has been started, so this one is done
}

// decideInit looks for the next init container, from the last one backwards, for
// completed ones may have been forgotten: the latest that was started decides.
//
// Two things follow that surprise people. Once a plain container runs, the pod is
// initialized, and no dead sidecar holds anything. And when none runs, a sidecar
// holds the plain containers only if it is the last of the list: behind it, an
// init container that completed once counts as the end of initialization.
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

// decideSidecar: it is restarted whenever it does not run. The next one begins
// when it runs, and has passed its startup probe if there is one; readiness never
// counts, and liveness does not hold the next one back.
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
		// It is not started yet.
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

// decideInitial: a plain init container runs once, until it completes. With Never,
// one that failed ends the pod. (Mostly its phase, Failed, has done so already.)
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

// passed: init container i is done, so the next one begins, or initialization ends.
func (s *State) passed(i int, p *initPlan) {
	switch {
	case i == s.spec.inits-1:
		p.initialized = true
	case !p.past:
		p.start(i + 1)
	}
}
