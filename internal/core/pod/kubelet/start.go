package kubelet

import "time"

// step is how far the start of a container has come. The pass waits meanwhile.
type step int

const (
	notStarting step = iota
	pulling
	launching
	inHook // postStart
)

// beginStart starts a container, if it is not in back-off.
// Source: kuberuntime_manager.go SyncPod (start), doBackOff.
func (s *State) beginStart(i int) {
	c := &s.c[i]
	if c.known != never {
		if until, in := c.crashes.holds(c.known, s.now); in {
			s.backsOff(i, until, s.crashRetry(until), "back-off after a crash")
			return
		}
		c.crashes = c.crashes.next(c.known, s.now)
	}
	if until, in := c.pulls.holds(c.pulls.since, s.now); in {
		s.backsOff(i, until, s.now+Retry, "back-off pulling the image")
		return
	}
	c.step = pulling
	s.do(Action{Kind: Pull, Container: s.name(i)})
}

func (s *State) backsOff(i int, until, retry time.Duration, why string) {
	s.do(Action{Kind: BackOff, Container: s.name(i), Timeout: until - s.now, Reason: why})
	s.failed(s.current(), retry)
}

// crashRetry is when a pass that met a crash back-off is repeated.
func (s *State) crashRetry(until time.Duration) time.Duration {
	if s.spec.version.ExactRetry {
		return min(until, s.now+resync)
	}
	return s.now + Retry
}

// pulled: the image is there, or not. An image that is missing costs the pod
// this container, and holds back no other plain one.
// Source: images/image_manager.go EnsureImageExists.
func (s *State) pulled(i int, ok bool) {
	c := &s.c[i]
	if c.step != pulling {
		return
	}
	if ok {
		c.step, c.pulls = launching, backOff{}
		s.do(Action{Kind: Start, Container: s.name(i)})
		return
	}
	c.step = notStarting
	if !s.spec.containers[i].NeverPull {
		c.pulls = c.pulls.next(s.now, s.now)
	}
	s.failed(s.current(), s.now+Retry)
	s.drive()
}

// launched: the container runs, or could not be started. The latter is an exit
// with code 128 (StartError).
// Source: kuberuntime_container.go startContainer steps 2 to 4.
func (s *State) launched(i int, ok bool) {
	c := &s.c[i]
	if c.step != launching {
		return
	}
	s.worker.acted = true
	s.changed()
	*c = container{run: running, incarnation: c.incarnation + 1, startedAt: s.now, here: true, finishedAt: c.finishedAt,
		known: c.known, shown: c.shown, crashes: c.crashes, killing: killing{deadline: never}}
	c.resetProbes()
	if !ok || s.sandbox != sandboxReady {
		c.run, c.code, c.finishedAt = exited, 128, s.now
		s.failed(s.current(), s.now+Retry)
		s.drive()
		return
	}
	if s.spec.containers[i].PostStart != NoHandler {
		c.step = inHook
		s.do(Action{Kind: RunHook, Container: s.name(i), Which: PostStart})
		return
	}
	s.drive()
}

// hookReturned: a postStart that failed has its container killed, with the whole
// grace period of the pod; only then does the pass go on.
// Source: kuberuntime_container.go startContainer step 4.
func (s *State) hookReturned(i int, which Which, ok bool) {
	c := &s.c[i]
	switch {
	case which == PreStop && c.killing.stage == inPreStop:
		s.preStopDone(i)
	case which == PostStart && c.step == inHook:
		c.step = notStarting
		if !ok {
			s.failed(s.current(), s.now+Retry)
			s.beginKill(i, s.spec.grace, false)
		}
		s.drive()
	}
}

// A backOff makes the kubelet wait longer and longer. The zero value is none.
// Source: client-go v0.34.4 util/flowcontrol/backoff.go; the figures are
// containerBackOffPeriod, MaxContainerBackOff and imageBackOffPeriod in kubelet.go.
type backOff struct {
	delay time.Duration
	since time.Duration // of the last start
}

const (
	firstDelay = 10 * time.Second
	maxDelay   = 5 * time.Minute
	forgetting = 10 * time.Minute // of running well (HasExpiredFunc in kubelet.go)
)

// holds returns until when a container that ended at that time must wait, and
// whether that is in the future. The first restart is at once.
func (b backOff) holds(ended, now time.Duration) (time.Duration, bool) {
	if ended-b.since > forgetting {
		return 0, false
	}
	return ended + b.delay, now < ended+b.delay
}

// next is the back-off after one more start.
func (b backOff) next(ended, now time.Duration) backOff {
	if b.delay == 0 || ended-b.since > forgetting {
		return backOff{delay: firstDelay, since: now}
	}
	return backOff{delay: min(2*b.delay, maxDelay), since: now}
}
