package kubelet

// A sandbox is what the containers of a pod run in.
type sandbox struct {
	is      sandboxState
	address bool // there is an IP, of this sandbox or of the one before
}

type sandboxState int8

const (
	noSandbox sandboxState = iota
	sandboxReady
	deadSandbox
)

func (b *sandbox) made() { b.is, b.address = sandboxReady, true }

// lost reports whether there was a sandbox; it is dead now.
func (b *sandbox) lost() bool {
	was := b.is == sandboxReady
	if was {
		b.is = deadSandbox
	}
	return was
}

// removed reports whether there was a sandbox; there will be no other one.
func (b *sandbox) removed() bool {
	was := b.is == sandboxReady
	b.is = deadSandbox
	return was
}

// sandboxAnswered: the sandbox is there, with its IP, or could not be made.
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

// sandboxDied: the containers die with the sandbox.
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

// sandboxLost: containers that run are stopped, in order, before there is a new
// sandbox. The API keeps the old IP until then.
// Source: kuberuntime_manager.go SyncPod step 2; pleg/generic.go getPodIPs.
func (s *State) sandboxLost() {
	if s.sandbox.lost() {
		s.changed()
	}
}

// forgetInits: in a new sandbox the init containers have never run.
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
