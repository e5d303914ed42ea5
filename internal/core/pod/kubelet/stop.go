package kubelet

import "time"

// A killing is the state of the termination of one container: preStop, waiting for other containers, SIGTERM,
// SIGKILL. Source: kuberuntime_container.go killContainer.
type killing struct {
	stage    stage
	left     time.Duration // remaining grace period
	since    time.Duration // begin of the stage
	deadline time.Duration // time at which the stage is ended; never if it has no limit
	inTurn   bool          // before SIGTERM it waits until other containers have ended
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

// enter begins a stage, which may use all of the remaining grace period.
func (k *killing) enter(stage stage, now time.Duration) {
	k.stage, k.since, k.deadline = stage, now, now+k.left
}

// spend reduces the remaining grace period by the time since the stage began, rounded down to seconds.
func (k *killing) spend(now time.Duration) {
	k.left -= (now - k.since).Truncate(time.Second)
	k.since = now
}

// term begins the stage after SIGTERM. It lasts at least two seconds before SIGKILL, even if less is left of the
// grace period.
func (k *killing) term(now time.Duration) {
	k.left = max(k.left, minimumGrace)
	k.enter(termed, now)
}

func (k *killing) kill() { k.stage, k.deadline = sigkilled, never }

func (k *killing) end() { *k = notKilled() }

// beginKillAll stops all running containers. Their preStop hooks begin at once. If the pod has sidecars, each
// container gets SIGTERM only when [State.isTurn] permits it.
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

// preStopDone continues after a preStop hook that returned or used up the grace period.
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

// giveTurns sends SIGTERM to all waiting containers for which [State.isTurn] permits it.
func (s *State) giveTurns() {
	for i := range s.c {
		if s.c[i].killing.stage == awaitingTurn && s.isTurn(i) {
			s.c[i].killing.spend(s.now)
			s.term(i)
		}
	}
}

// isTurn reports whether container i may get SIGTERM: all regular containers, and all sidecars later in the
// list, have ended. Regular init containers that still run do not matter. Source:
// kuberuntime_termination_order.go newTerminationOrdering.
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

// killDeadline ends a stage whose time is over.
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

// killed removes the termination state of a container that has ended, and lets the others continue.
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

// graceAfterProbe returns the grace period of a container that is killed because of a probe: the probe's own
// grace period, or the pod's if the probe has none. Source: kuberuntime_container.go setTerminationGracePeriod.
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
