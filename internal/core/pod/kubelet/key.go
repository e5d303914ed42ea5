package kubelet

import (
	"encoding/binary"
	"math"
	"time"
)

// Key returns an identification of the state: it is equal for two states of one pod that behave alike from now
// on. The past is left out, and all times are relative to now. An explorer uses it to recognise visited states.
//
// Incarnations are left out too, and exit codes except whether they are 0. A caller whose behaviour depends on them must
// add them to its own key.
func (s State) Key() string { return string(s.AppendKey(nil, anything)) }

// An Outlook limits the events to come, as far as an explorer knows.
type Outlook struct {
	FailedPulls int                        // largest number of pulls that may still fail
	Of          func(name string) Prospect // of each container
}

// A Prospect limits the future of a container, as far as an explorer knows.
type Prospect int8

const (
	Open     Prospect = iota // anything may happen to it
	Starts                   // its image is pulled, or it is launched, and that cannot fail
	Succeeds                 // it runs, and its probes succeed, or wait, as long as nothing changes its health
	LastRun                  // moreover, it is not started again after this run
)

// anything is the outlook of which every event may still happen.
var anything = Outlook{FailedPulls: math.MaxInt, Of: func(string) Prospect { return Open }}

// AppendKey appends a key like [State.Key] to b, but leaves out what cannot matter in the given outlook:
//   - of a container that starts: its past, because the start does not depend on it any more;
//   - of a container whose probes succeed: the phase of the probes within their periods. In states with equal keys the same
//     happens, but the instants at which these probes run may differ;
//   - of a container in its last run: also its back-offs.
func (s State) AppendKey(b []byte, o Outlook) []byte {
	k := key{now: s.now, b: b}
	k.num(int(s.pass.mode), len(s.pass.tasks), int(s.sandbox.is))
	for _, t := range s.pass.tasks {
		k.num(int(t.kind), t.i)
	}
	q := s.schedule
	k.time(s.notBeforeNow(q.wake), s.notBeforeNow(q.retry), max(q.fresh, s.now), q.relist)
	k.bits(s.pass.begun, s.pass.acted, q.bound, s.sandbox.address, s.status.HasIP, s.status.Initialized, s.status.Ready, q.first == never)
	k.num(s.status.Phase.letter(), s.ending.final.letter(), int(s.ending.stage), int(s.ending.grace))
	if s.spec.version.Relist > 0 {
		k.num(int(s.now % s.spec.version.Relist))
	}
	for i := range s.c {
		s.keyOf(&k, i, o)
	}
	return k.b
}

// keyOf adds container i to a key.
func (s *State) keyOf(k *key, i int, o Outlook) {
	c, final, expects := &s.c[i], s.Final(), Open
	if !final {
		expects = o.Of(s.name(i))
	}
	k.num(int(expects))
	if expects == Starts {
		k.num(int(c.start.step), int(c.start.crashes.delay))
		k.bits(c.shown.started)
		return
	}
	k.container(c, !final && expects != LastRun)
	if end, ok := s.GraceEnd(s.name(i)); ok {
		k.time(max(end, s.now))
	}
	if !final && o.FailedPulls > 0 && s.startsAgain(i) {
		// A failed pull makes the back-off longer even if the container did not run, and the longer back-off still counts
		// from the end of the previous run.
		k.time(max(c.life.finishedAt+c.start.crashes.longest(o.FailedPulls), s.now))
	}
	if expects == Open {
		s.keyOfProbes(k, i)
	}
}

// startsAgain reports whether container i has ended and will be started again.
func (s *State) startsAgain(i int) bool {
	l := s.c[i].life
	return l.run == exited && s.restarts(i) && (s.spec.kind(i) != initial || l.code != 0)
}

// keyOfProbes adds the probes of container i: in a pod that has ended, only the readiness probe still matters.
func (s *State) keyOfProbes(k *key, i int) {
	final := s.Final()
	for w := range s.c[i].probes.of {
		if s.spec.hasProbe(i, w) && (!final || w == readinessProbe) {
			p, period := &s.c[i].probes.of[w], s.spec.probes[i][w].Period
			k.num(int((s.now-max(s.schedule.first, 0))%period), int((s.now-p.clock)%period))
			k.probe(p)
		}
	}
}

// notBeforeNow returns the later of t and now, because a pass that became due during another pass is due now. It
// does not change the constant [never].
func (s State) notBeforeNow(t time.Duration) time.Duration {
	if t == never {
		return never
	}
	return max(t, s.now)
}

type key struct {
	now time.Duration
	b   []byte
}

func (k *key) num(ns ...int) {
	for _, n := range ns {
		k.b = binary.AppendVarint(k.b, int64(n))
	}
}

func (k *key) bits(bs ...bool) {
	n := 0
	for _, b := range bs {
		n <<= 1
		if b {
			n |= 1
		}
	}
	k.num(n)
}

// time adds times relative to now. The constant [never] has a value of its own.
func (k *key) time(ts ...time.Duration) {
	for _, t := range ts {
		if t == never {
			k.num(-1 << 62)
		} else {
			k.num(int(t - k.now))
		}
	}
}

// backOff adds the rest of the delay of a container that ended at the given time, and whether the back-off has
// expired.
func (k *key) backOff(b backOff, ended time.Duration, runs bool) {
	k.num(int(b.delay))
	if b.delay == 0 {
		return
	}
	until, in := b.holds(ended, k.now)
	k.bits(in, b.forgotten(ended))
	if in {
		k.time(until)
	}
	if runs && !b.kept { // how long the container has run when it ends decides whether the back-off expires
		k.num(int(min(k.now-b.since, forgetting+1)))
	}
}

// container adds a container. The parameter starts tells whether it may be started again.
func (k *key) container(c *container, starts bool) {
	l, t := c.life, c.start
	k.num(int(l.run), int(t.step), int(c.killing.stage))
	k.bits(c.probes.seen, c.probes.started, c.shown.started, c.shown.ready, l.here, l.incarnation < 0, l.finishedAt == never, l.known == never)
	if l.run == exited {
		k.bits(l.code == 0)
	}
	if starts {
		k.backOff(t.crashes, l.finishedAt, l.run == running)
		if l.known != l.finishedAt {
			k.backOff(t.crashes, l.known, false)
		}
		k.backOff(t.pulls, t.pulls.since, false)
	}
	if c.killing.stage != notKilling {
		k.num(int(c.killing.left))
		k.bits(c.killing.inTurn)
		k.time(c.killing.since, c.killing.deadline)
	}
}

func (k *key) probe(p *probe) {
	k.num(int(p.result), int(p.last), p.row)
	k.bits(p.onHold, p.again)
	k.time(p.due, p.expires)
	if p.expires != never {
		k.time(p.sent)
	}
}
