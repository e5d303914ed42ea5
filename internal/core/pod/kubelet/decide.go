package kubelet

// decide returns the tasks of a pass, which is one call of SyncPod. It reads the state of the containers only
// once, so a container that ends during the pass is handled in the next one. Source: kuberuntime_manager.go
// computePodActions.
func (s *State) decide() []task {
	if s.sandbox.is != sandboxReady {
		return s.decideNewSandbox()
	}
	init := s.decideInit()
	switch {
	case init.hopeless:
		return []task{{kind: killPod}}
	case !init.initialized:
		return append(init.kills, init.starts...)
	}
	kills, starts, kept := s.decidePlain()
	if kept == 0 && len(starts) == 0 {
		// Sidecars that still run do not keep a pod alive, and their exit codes do not affect its phase.
		return []task{{kind: killPod}}
	}
	tasks := append(init.kills, kills...)
	tasks = append(tasks, init.starts...)
	return append(tasks, starts...)
}

// decideNewSandbox stops everything and starts the pod again, from its first init container, in a new sandbox.
// If no container needs to run, the pod is only stopped. With Never a pod gets no second sandbox, so regular
// containers that have not started yet never start.
func (s *State) decideNewSandbox() []task {
	again := s.sandbox.is == deadSandbox
	if again && s.spec.restart == Never && anySeen(s.c) {
		return []task{{kind: killPod}}
	}
	var starts []task
	for i := s.spec.inits; i < len(s.c); i++ {
		if s.spec.policy(i) != OnFailure || !s.c[i].life.succeeded() {
			starts = append(starts, task{kind: startOne, i: i})
		}
	}
	if len(starts) == 0 && anySeen(s.plains()) {
		return []task{{kind: killPod}}
	}
	tasks := []task{{kind: killPod}, {kind: makeBox}}
	if s.spec.inits > 0 {
		return append(tasks, task{kind: startInit, i: 0})
	}
	return append(tasks, starts...)
}

// decidePlain starts all regular containers that should run and do not. Each is decided by itself: a container
// is restarted without its sidecars and the other containers.
func (s *State) decidePlain() (kills, starts []task, kept int) {
	for i := s.spec.inits; i < len(s.c); i++ {
		switch {
		case s.c[i].life.run != running:
			if s.c[i].life.run == absent || s.restarts(i) {
				starts = append(starts, task{kind: startOne, i: i})
			}
		case s.c[i].probes.failed() != "":
			kills = append(kills, task{kind: killOne, i: i})
			if s.spec.policy(i) != Never {
				starts = append(starts, task{kind: startOne, i: i})
			}
		default:
			kept++
		}
	}
	return kills, starts, kept
}

// restarts reports whether a container that has ended is started again. A failed start (StartError) counts as an
// end, so with Never it is not repeated.
// Source: container/helpers.go ShouldContainerBeRestarted.
func (s *State) restarts(i int) bool {
	switch s.spec.policy(i) {
	case Never:
		return false
	case OnFailure:
		return s.c[i].life.code != 0
	default:
		return true
	}
}
