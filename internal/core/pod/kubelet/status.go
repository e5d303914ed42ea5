package kubelet

// Status is the pod's status in the API. The kubelet publishes it at the beginning of a pass. So while a hook
// blocks a pass, the status does not show what the pass has done, including the pod's IP and the running
// containers.
// Source: kubelet.go SyncPod calls statusManager.SetPodStatus first of all.
type Status struct {
	Phase           Phase
	HasIP           bool
	Initialized     bool
	ContainersReady bool
	Ready           bool // equals ContainersReady, because readiness gates are not modelled
}

// Phase is the pod's phase in the API.
type Phase string

const (
	Pending   Phase = "Pending"
	Running   Phase = "Running"
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
)

func (p Phase) over() bool { return p == Succeeded || p == Failed }

// Status returns the published status.
func (s State) Status() Status { return s.status }

// A shown is a container's part of the published status.
type shown struct {
	ready   bool
	started bool // it was started in the last published status or the one before
}

func (v *shown) notReady() { v.ready = false }

// publish publishes the current status. From it the prober learns about new containers.
func (s *State) publish() {
	for i := range s.c {
		if c := &s.c[i]; c.life.run == running && !c.probes.seen {
			c.probes.notice(&s.spec.probes[i], s.schedule.first, c.life.startedAt, s.now)
		}
	}
	s.set(s.currentStatus())
	for i := range s.c {
		c := &s.c[i]
		c.shown.started = c.probes.started
		c.probes.of[readinessProbe].runSoon(s.spec.probes[i][readinessProbe], c.life.startedAt, s.now)
	}
}

// publishReadiness publishes only the readiness of the containers, without waiting for a pass.
// Source: status/status_manager.go SetContainerReadiness, SetContainerStartup.
func (s *State) publishReadiness() {
	next := s.status
	next.ContainersReady = s.containersReady()
	next.Ready = next.ContainersReady
	s.set(next)
}

func (s *State) set(next Status) {
	if next != s.status {
		s.status = next
		s.do(Action{Kind: Publish, Status: next})
	}
}

// currentStatus returns the status of the pod as it is now. A final phase never changes. It is not shown until
// everything has stopped, because controllers may wait for the end of the pod.
// Source: kubelet_pods.go generateAPIPodStatus; status_manager.go mergePodStatus.
func (s *State) currentStatus() Status {
	end := &s.ending
	phase := s.phase(end.stage == stopped)
	end.settle(phase)
	ready := s.containersReady()
	switch {
	case end.final != "" && end.stage == stopped:
		phase = end.final
	case end.final != "":
		phase = s.status.Phase
	}
	return Status{Phase: phase, HasIP: s.sandbox.address, Initialized: end.final == Succeeded || s.initialized(),
		ContainersReady: ready, Ready: ready}
}

// containersReady reports whether all sidecars and regular containers run, are started and ready. Source:
// status/generate.go GenerateContainersReadyCondition.
func (s *State) containersReady() bool {
	all := s.ending.final == ""
	for i := range s.c {
		c := &s.c[i]
		c.shown.ready = c.probes.ready(&s.spec.probes[i])
		all = all && (c.shown.ready || s.spec.kind(i) == initial)
	}
	return all
}

// initialized reports whether all init containers are done, or a regular container has run. Source:
// status/generate.go GeneratePodInitializedCondition.
func (s *State) initialized() bool {
	if anySeen(s.plains()) || s.spec.version.StaysInitialized && s.status.Initialized {
		return true
	}
	for i := range s.spec.inits {
		c := s.c[i]
		if s.spec.kind(i) == sidecar && !c.probes.started || s.spec.kind(i) == initial && !c.life.succeeded() {
			return false
		}
	}
	return true
}

// phase returns the pod's phase. If over is true, no container is started again, so containers that would be
// restarted count as ended. Source: kubelet_pods.go getPhase.
func (s *State) phase(over bool) Phase {
	n := s.count()
	switch {
	case n.failedInits > 0:
		return Failed
	case n.pending > 0:
		return Pending
	case n.running > 0:
		return Running
	case n.stopped == 0:
		return Pending
	case !over && n.again > 0:
		return Running
	case n.stopped == n.succeeded:
		return Succeeded
	default:
		return Failed
	}
}

// A tally holds the numbers of containers by state.
type tally struct {
	pending     int // not started yet, or an init container that is not done
	failedInits int // failed init containers that are not tried again
	running     int // regular containers and sidecars that run
	stopped     int // regular containers that have ended
	succeeded   int // stopped containers with exit code 0
	again       int // stopped containers that are started again
}

func (s *State) count() (n tally) {
	active := false // a regular container was started in the present sandbox
	for _, c := range s.plains() {
		active = active || c.life.here && s.sandbox.is == sandboxReady
	}
	for i, c := range s.c {
		switch s.spec.kind(i) {
		case plain:
			n.addPlain(c, s.restarts(i))
		case sidecar:
			n.addSidecar(c, active || s.spec.version.KeepsStarted && c.life.run == running && c.shown.started)
		default:
			n.addInitial(c, s.spec.policy(i))
		}
	}
	return n
}

func (n *tally) addPlain(c container, again bool) {
	switch c.life.run {
	case absent:
		n.pending++
	case running:
		n.running++
	case exited:
		n.stopped++
		if c.life.succeeded() {
			n.succeeded++
		}
		if again {
			n.again++
		}
	}
}

// addSidecar counts a sidecar. A sidecar that has ended is not counted, whatever its exit code. A running
// sidecar makes the pod pending until a regular container has been started.
func (n *tally) addSidecar(c container, started bool) {
	if c.life.run == running {
		n.running++
	}
	if c.life.run != exited && !started {
		n.pending++
	}
}

func (n *tally) addInitial(c container, policy RestartPolicy) {
	switch {
	case c.life.run != exited:
		n.pending++
	case c.life.code != 0 && policy == Never:
		n.failedInits++
	}
}

// letter returns a number that identifies the phase; 0 if it is empty.
func (p Phase) letter() int {
	if p == "" {
		return 0
	}
	return int(p[0])
}
