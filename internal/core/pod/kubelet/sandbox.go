package kubelet

// A sandbox is the environment in which the containers of a pod run.
type sandbox struct {
	is      sandboxState
	address bool // there is an IP, from this sandbox or the previous one
}

type sandboxState int8

const (
	noSandbox sandboxState = iota
	sandboxReady
	deadSandbox
)

func (b *sandbox) made() { b.is, b.address = sandboxReady, true }

// lost marks the sandbox as dead, and reports whether it was alive.
func (b *sandbox) lost() bool {
	was := b.is == sandboxReady
	if was {
		b.is = deadSandbox
	}
	return was
}

// removed marks the sandbox as dead for good, and reports whether it was alive. No other one follows.
func (b *sandbox) removed() bool {
	was := b.is == sandboxReady
	b.is = deadSandbox
	return was
}

// sandboxAnswered handles the answer to CreateSandbox: the sandbox is there, with its IP, or could not be
// made.
func (s *State) sandboxAnswered(ok bool) {
	if !s.makesSandbox() || s.sandbox.is == sandboxReady {
		return
	}
	if ok {
		s.sandbox.made()
		s.changed()
	} else {
		s.schedule.retryAt(s.now + Retry)
		s.pass.giveUp()
	}
	s.drive()
}

// makesSandbox reports whether the pass under way waits for a sandbox.
func (s *State) makesSandbox() bool {
	return s.pass.mode == syncing && len(s.pass.tasks) > 0 && s.pass.current().kind == makeBox
}

// sandboxDied ends the sandbox and all its containers.
func (s *State) sandboxDied() {
	if s.sandbox.is != sandboxReady {
		return
	}
	s.sandboxLost()
	for i := range s.c {
		if s.c[i].life.run == running {
			s.exited(i, 137)
		}
	}
}

// sandboxLost marks the sandbox as dead. Its running containers are then stopped, in order, before a new
// sandbox is made. Until then the API keeps the old IP.
// Source: kuberuntime_manager.go SyncPod step 2; pleg/generic.go getPodIPs.
func (s *State) sandboxLost() {
	if s.sandbox.lost() {
		s.changed()
	}
}

// forgetInits resets the init containers: in a new sandbox they have never run. Source:
// kuberuntime_manager.go SyncPod step 2 (purgeInitContainers).
func (s *State) forgetInits() {
	for i := range s.c {
		c := &s.c[i]
		c.life.leave()
		if i < s.spec.inits {
			c.life.forget()
			c.probes.reset()
			c.shown.notReady()
		}
	}
}
