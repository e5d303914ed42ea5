package kubelet

import "time"

// A killing is the progress of the end of one container: preStop, its turn, SIGTERM, SIGKILL.
// Source: kuberuntime_container.go killContainer.
type killing struct {
	stage    stage
	left     time.Duration // remaining grace period
	since    time.Duration // when the stage began
	deadline time.Duration // latest end of the stage; never: none
	inTurn   bool          // it waits for its turn before SIGTERM
	graceEnd time.Duration // end of the whole grace period
}

type stage int8

const (
	notKilling stage = iota
	inPreStop
	awaitingTurn
	termed
	sigkilled
)

func notKilled() killing { return killing{deadline: never} }

func (k *killing) begin(grace, now time.Duration, inTurn bool) {
	*k = killing{left: grace, since: now, deadline: never, inTurn: inTurn, graceEnd: now + grace}
}

// enter begins a stage, which may last as long as the remaining grace period.
func (k *killing) enter(stage stage, now time.Duration) {
	k.stage, k.since, k.deadline = stage, now, now+k.left
}

// spend subtracts the time since the stage began from the grace period, in whole seconds, rounded down.
func (k *killing) spend(now time.Duration) {
	k.left -= (now - k.since).Truncate(time.Second)
	k.since = now
}

// term begins the stage after SIGTERM. However little is left of the grace period, SIGKILL follows after two
// seconds at the earliest.
func (k *killing) term(now time.Duration) {
	k.left = max(k.left, minimumGrace)
	k.enter(termed, now)
}

func (k *killing) kill() { k.stage, k.deadline = sigkilled, never }

func (k *killing) end() { *k = notKilled() }

// beginKillAll stops everything that runs: the preStop hooks of all containers begin now. If there are
// sidecars, they wait for their turn.
// Source: kuberuntime_container.go killContainersWithSyncResult.
func (s *State) beginKillAll(grace time.Duration) {
	ordered := s.spec.hasSidecar()
	for i := range s.c {
		s.beginKill(i, grace, ordered)
	}
	s.giveTurns()
}

func (s *State) beginKill(i int, grace time.Duration, inTurn bool) {
	c := &s.c[i]
	if c.life.run != running || c.killing.stage != notKilling {
		return
	}
	s.pass.act()
	c.killing.begin(grace, s.now, inTurn && s.spec.kind(i) == sidecar)
	if s.spec.containers[i].PreStop == NoHandler || grace <= 0 {
		s.awaitTurn(i)
		return
	}
	c.killing.enter(inPreStop, s.now)
	s.do(Action{Kind: RunHook, Container: s.name(i), Which: PreStop})
}

// preStopDone goes on after a preStop hook, which returned or used up the grace period.
func (s *State) preStopDone(i int) {
	s.c[i].killing.spend(s.now)
	s.awaitTurn(i)
	s.giveTurns()
}

func (s *State) awaitTurn(i int) {
	if k := &s.c[i].killing; k.inTurn && k.left > 0 {
		k.enter(awaitingTurn, s.now)
		return
	}
	s.term(i)
}

// giveTurns sends SIGTERM to the sidecars whose turn it is.
func (s *State) giveTurns() {
	for i := range s.c {
		if s.c[i].killing.stage == awaitingTurn && s.isTurn(i) {
			s.c[i].killing.spend(s.now)
			s.term(i)
		}
	}
}

// isTurn reports whether a sidecar may be stopped: all plain containers and all later sidecars have ended.
// No container waits for a plain init container that still runs.
// Source: kuberuntime_termination_order.go newTerminationOrdering.
func (s *State) isTurn(i int) bool {
	for j := range s.c {
		before := s.spec.kind(j) == plain || s.spec.kind(j) == sidecar && j > i
		if before && s.c[j].life.run == running {
			return false
		}
	}
	return true
}

// term sends SIGTERM to a container.
func (s *State) term(i int) {
	k := &s.c[i].killing
	k.term(s.now)
	s.do(Action{Kind: Stop, Container: s.name(i), Timeout: k.left})
}

// killDeadline ends a stage that took too long.
func (s *State) killDeadline(i int) {
	k := &s.c[i].killing
	switch k.stage {
	case inPreStop:
		s.preStopDone(i)
	case awaitingTurn:
		k.spend(s.now)
		s.term(i)
	default:
		k.kill()
		s.do(Action{Kind: Kill, Container: s.name(i)})
	}
}

// killed ends the killing of a container that has ended. Other containers may get their turn.
func (s *State) killed(i int) {
	s.c[i].killing.end()
	s.giveTurns()
}

// stopping reports whether any container is being stopped.
func (s *State) stopping() bool {
	for _, c := range s.c {
		if c.killing.stage != notKilling {
			return true
		}
	}
	return false
}

// graceAfterProbe returns the grace period of a container that a probe has killed. The probe may have a
// grace period of its own.
// Source: kuberuntime_container.go setTerminationGracePeriod.
func (s *State) graceAfterProbe(i int) time.Duration {
	c := s.spec.containers[i]
	own := time.Duration(0)
	switch s.c[i].probes.failed() {
	case Liveness:
		own = c.Liveness.Grace
	case Startup:
		own = c.Startup.Grace
	}
	if own > 0 {
		return own
	}
	return s.spec.grace
}
