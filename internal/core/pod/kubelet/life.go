package kubelet

import "time"

// A life has what the runtime knows of the last incarnation of a container.
type life struct {
	run         run
	code        int
	incarnation int // -1: never started
	startedAt   time.Duration
	finishedAt  time.Duration // of the last one that ended; never: none
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

// look is called by a pass at its beginning.
func (l *life) look() { l.known = l.finishedAt }

// leave: there is another sandbox.
func (l *life) leave() { l.here = false }

// forget: as if the container had never run, but for the number of its next incarnation.
func (l *life) forget() {
	*l = life{incarnation: l.incarnation, finishedAt: never, known: never}
}

func (l *life) succeeded() bool { return l.run == exited && l.code == 0 }
