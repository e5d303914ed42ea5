package kubelet

import "time"

// A start is the state of the start of a container, with the back-offs that delay it. While it is under way, the
// pass blocks.
type start struct {
	step    step
	crashes backOff
	pulls   backOff
}

type step int8

const (
	notStarting step = iota
	pulling
	launching
	inHook // postStart
)

// A holdBack is the reason why a container is not started yet, for people.
type holdBack string

const (
	afterCrash holdBack = "back-off after a crash"
	afterPull  holdBack = "back-off pulling the image"
)

// begin begins a start at the time now. If a back-off delays the start, begin returns the end of the delay and
// the reason instead. The parameter ended is the time at which the container last ended, or [never]. Source:
// kuberuntime_manager.go SyncPod (start), doBackOff.
func (t *start) begin(ended, now time.Duration) (until time.Duration, why holdBack) {
	if ended != never {
		if until, in := t.crashes.holds(ended, now); in {
			return until, afterCrash
		}
		t.crashes = t.crashes.next(ended, now)
	}
	if until, in := t.pulls.holds(t.pulls.since, now); in {
		return until, afterPull
	}
	t.step = pulling
	return 0, ""
}

func (t *start) pulled() { t.step, t.pulls = launching, backOff{} }

// missing ends the start because the image could not be pulled.
func (t *start) missing(neverPull bool, now time.Duration) {
	t.step = notStarting
	if !neverPull {
		t.pulls = t.pulls.next(now, now)
	}
}

func (t *start) runHook() { t.step = inHook }

func (t *start) end() { t.step = notStarting }

// beginStart starts a container unless it is in back-off.
func (s *State) beginStart(i int) {
	until, why := s.c[i].start.begin(s.c[i].life.known, s.now)
	if why == "" {
		s.do(Action{Kind: Pull, Container: s.name(i)})
		return
	}
	s.do(Action{Kind: BackOff, Container: s.name(i), Timeout: until - s.now, Reason: string(why)})
	retry := s.now + Retry
	if why == afterCrash && s.spec.version.ExactRetry {
		retry = min(until, s.now+resync)
	}
	s.failed(retry)
}

// pulled handles the answer to a pull. If the image is missing, only this container does not start; the pass
// continues with the other regular containers. Source: images/image_manager.go EnsureImageExists.
func (s *State) pulled(i int, ok bool) {
	t := &s.c[i].start
	if t.step != pulling {
		return
	}
	if ok {
		t.pulled()
		s.do(Action{Kind: Start, Container: s.name(i)})
		return
	}
	t.missing(s.spec.containers[i].NeverPull, s.now)
	s.failed(s.now + Retry)
	s.drive()
}

// launched handles the answer to a start. A container that could not be started counts as one that exited with
// code 128 (StartError).
// Source: kuberuntime_container.go startContainer steps 2 to 4.
func (s *State) launched(i int, ok bool) {
	c := &s.c[i]
	if c.start.step != launching {
		return
	}
	s.pass.act()
	s.changed()
	c.life.begin(s.now)
	c.shown.notReady()
	switch {
	case !ok || s.sandbox.is != sandboxReady:
		c.life.end(128, s.now)
		s.failed(s.now + Retry)
	case s.spec.containers[i].PostStart != NoHandler:
		c.start.runHook()
		s.do(Action{Kind: RunHook, Container: s.name(i), Which: PostStart})
		return
	}
	c.start.end()
	s.drive()
}

// hookReturned handles the return of a hook. If a postStart hook failed, its container is killed, with the pod's
// whole grace period, and the pass continues only after that.
// Source: kuberuntime_container.go startContainer step 4.
func (s *State) hookReturned(i int, which Which, ok bool) {
	c := &s.c[i]
	switch {
	case which == PreStop && c.killing.stage == inPreStop:
		s.preStopDone(i)
	case which == PostStart && c.start.step == inHook:
		c.start.end()
		if !ok {
			s.failed(s.now + Retry)
			s.beginKill(i, s.spec.grace, false)
		}
		s.drive()
	}
}
