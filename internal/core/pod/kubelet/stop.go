package kubelet

import "time"

// A killing is the end of one container: preStop, its turn, SIGTERM, SIGKILL.
// Source: kuberuntime_container.go killContainer.
type killing struct {
	stage    stage
	left     time.Duration // of the grace period
	since    time.Duration // when the stage began
	deadline time.Duration // and ends then at the latest; never: it does not
	inTurn   bool          // it waits for its turn
	graceEnd time.Duration // the whole grace period is over then
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

// enter begins a stage that may take what is left of the grace period.
func (k *killing) enter(stage stage, now time.Duration) {
	k.stage, k.since, k.deadline = stage, now, now+k.left
}

// spend takes the whole seconds since the stage began from the grace period: it
// is counted in seconds, cut off.
func (k *killing) spend(now time.Duration) {
	k.left -= (now - k.since).Truncate(time.Second)
	k.since = now
}

// term: however little is left of the grace period, SIGKILL follows after two seconds
// at the earliest.
func (k *killing) term(now time.Duration) {
	k.left = max(k.left, minimumGrace)
	k.enter(termed, now)
}

func (k *killing) kill() { k.stage, k.deadline = sigkilled, never }

func (k *killing) end() { *k = notKilled() }

// beginKillAll stops all that runs: the preStop hooks of all containers begin
// now. Sidecars, where there are any, wait for their turn.
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

// preStopDone: the hook returned, or used up the grace period.
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

// giveTurns sends SIGTERM to the sidecars that are next.
func (s *State) giveTurns() {
	for i := range s.c {
		if s.c[i].killing.stage == awaitingTurn && s.isTurn(i) {
			s.c[i].killing.spend(s.now)
			s.term(i)
		}
	}
}

// isTurn: a sidecar is stopped after all plain containers and all later sidecars.
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

// term sends SIGTERM.
func (s *State) term(i int) {
	k := &s.c[i].killing
	k.term(s.now)
	s.do(Action{Kind: Stop, Container: s.name(i), Timeout: k.left})
}

// killDeadline: a stage took too long.
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

// killed: a container ended, so its killing did, and others may have their turn.
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

// graceAfterProbe is the grace period of a kill by a probe, which may have its own.
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
