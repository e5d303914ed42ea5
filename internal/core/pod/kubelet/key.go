package kubelet

import (
	"encoding/binary"
	"time"
)

// Key returns an identification of the state: it is equal for two states of one pod that behave alike from now
// on. The past is left out, and all times are relative to now. An explorer uses it to recognise visited states.
//
// Incarnations are left out too. A caller whose behaviour depends on them must add them to its own key.
func (s State) Key() string {
	k := key{now: s.now}
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
		c := &s.c[i]
		k.container(c)
		if end, ok := s.GraceEnd(s.name(i)); ok {
			k.time(max(end, s.now))
		}
		if c.life.run == exited && s.restarts(i) && (s.spec.kind(i) != initial || c.life.code != 0) {
			// A failed start makes the back-off longer even if the container did not run, and the longer back-off
			// still counts from the end of the previous run.
			k.time(max(c.life.finishedAt+maxDelay, s.now))
		}
		for w := range c.probes.of {
			if s.spec.hasProbe(i, w) {
				p, period := &c.probes.of[w], s.spec.probes[i][w].Period
				k.num(int((s.now-max(q.first, 0))%period), int((s.now-p.clock)%period))
				k.probe(p)
			}
		}
	}
	return string(k.b)
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
	k.bits(in, ended-b.since > forgetting)
	if in {
		k.time(until)
	}
	if runs { // how long the container has run when it ends decides whether the back-off expires
		k.num(int(min(k.now-b.since, forgetting+1)))
	}
}

func (k *key) container(c *container) {
	l, t := c.life, c.start
	k.num(int(l.run), int(t.step), int(c.killing.stage))
	k.bits(c.probes.seen, c.probes.started, c.shown.started, c.shown.ready, l.here, l.incarnation < 0, l.finishedAt == never, l.known == never)
	if l.run == exited {
		k.num(l.code)
	}
	k.backOff(t.crashes, l.finishedAt, l.run == running)
	if l.known != l.finishedAt {
		k.backOff(t.crashes, l.known, false)
	}
	k.backOff(t.pulls, t.pulls.since, false)
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
