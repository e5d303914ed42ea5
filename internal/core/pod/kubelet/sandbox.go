package kubelet

// A sandbox is the state of the pod sandbox, in which the containers run.
type sandbox struct {
	is      sandboxState
	address bool // the pod has an IP, from this sandbox or the previous one
}

type sandboxState int8

const (
	noSandbox sandboxState = iota
	sandboxReady
	deadSandbox
)

func (b *sandbox) made() { b.is, b.address = sandboxReady, true }

// lost marks the sandbox as dead. It returns whether it was ready before.
func (b *sandbox) lost() bool {
	was := b.is == sandboxReady
	if was {
		b.is = deadSandbox
	}
	return was
}

// removed marks the sandbox as dead. The pod gets no other sandbox. It returns whether it was ready before.
func (b *sandbox) removed() bool {
	was := b.is == sandboxReady
	b.is = deadSandbox
	return was
}

// sandboxAnswered handles the answer to CreateSandbox: the sandbox is ready and has an IP, or could not be
// created.
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

// makesSandbox reports whether the pass is waiting for a new sandbox.
func (s *State) makesSandbox() bool {
	return s.pass.mode == syncing && len(s.pass.tasks) > 0 && s.pass.current().kind == makeBox
}

// sandboxDied handles the death of the sandbox together with all its containers.
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

// sandboxLost marks the sandbox as dead. Unless the pod has ended, the next pass stops the containers that still
// run, in order, and then creates a new sandbox. Until then the API shows the old IP.
// Source: kuberuntime_manager.go SyncPod step 2; pleg/generic.go getPodIPs.
func (s *State) sandboxLost() {
	if s.sandbox.lost() {
		s.changed()
	}
}

// forgetInits resets the init containers, because they have not run in the new sandbox yet.
// Source: kuberuntime_manager.go SyncPod step 2 (purgeInitContainers).
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
