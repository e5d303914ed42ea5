package kubelet

import "time"

// A life is the runtime's record of the latest incarnation of a container. An incarnation is one run of it.
type life struct {
	run         run
	code        int
	incarnation int // -1: never started
	startedAt   time.Duration
	finishedAt  time.Duration // end of the latest incarnation that has ended; never if none has
	known       time.Duration // finishedAt when the pass under way began
	here        bool          // started in the present sandbox
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

// look stores finishedAt for the pass that begins.
func (l *life) look() { l.known = l.finishedAt }

// leave records that the pod gets a new sandbox.
func (l *life) leave() { l.here = false }

// forget removes the record, as if the container had never run. Only the incarnation's number is kept.
func (l *life) forget() {
	*l = life{incarnation: l.incarnation, finishedAt: never, known: never}
}

func (l *life) succeeded() bool { return l.run == exited && l.code == 0 }
