package kubelet

import "time"

// A life is the runtime's record of the last incarnation of a container.
type life struct {
	run         run
	code        int
	incarnation int // -1: never started
	startedAt   time.Duration
	finishedAt  time.Duration // when the last incarnation that has ended did so; never: none has
	known       time.Duration // finishedAt as the pass under way saw it
	here        bool          // started in this sandbox
}

// run is the state of a container in the runtime.
type run int8

const (
	absent run = iota
	running
	exited
)

func newLife() life { return life{incarnation: -1, finishedAt: never, known: never} }

func (l *life) begin(now time.Duration) {
	l.run, l.code, l.startedAt, l.here = running, 0, now, true
	l.incarnation++
}

func (l *life) end(code int, now time.Duration) {
	l.run, l.code, l.finishedAt = exited, code, now
}

// look stores the last end of the container, as a pass sees it at its beginning.
func (l *life) look() { l.known = l.finishedAt }

// leave records that the pod got another sandbox.
func (l *life) leave() { l.here = false }

// forget resets everything except the number of the next incarnation, as if the container had never run.
func (l *life) forget() {
	*l = life{incarnation: l.incarnation, finishedAt: never, known: never}
}

func (l *life) succeeded() bool { return l.run == exited && l.code == 0 }
