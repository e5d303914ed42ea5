package kubelet

import (
	"math"
	"slices"
	"time"
)

// The probes of a container, as indexes.
const (
	startupProbe = iota
	livenessProbe
	readinessProbe
)

var probeKinds = [...]Which{Startup, Liveness, Readiness}

// A probe is the state of one probe of the running incarnation.
// Source: prober/worker.go.
type probe struct {
	result  result
	last    result        // of the last answer, below the thresholds too
	row     int           // how many answers in a row were like that
	onHold  bool          // it does not run again in this incarnation
	clock   time.Duration // it runs at whole periods since then
	again   bool          // it is to run once more at once
	due     time.Duration // its next run; never: none
	sent    time.Duration // its last run
	expires time.Duration // a run is under way, and must end by then; never: none
}

// result is the result of a probe.
type result int

const (
	unseen  result = iota // the prober has not seen this incarnation yet
	unknown               // it does, and has no verdict
	success
	failure
)

// first is the result of a probe before its first verdict.
// Source: prober/worker.go newWorker (initialValue).
var first = [...]result{startupProbe: unknown, livenessProbe: success, readinessProbe: failure}

func (c *container) resetProbes() {
	for w := range c.probes {
		c.probes[w] = probe{due: never, expires: never}
	}
}

func (s *State) probeSpec(i, w int) Probe {
	c := s.spec.containers[i]
	return [...]Probe{c.Startup, c.Liveness, c.Readiness}[w]
}

// hasProbe reports whether the kubelet runs that probe: not for plain init containers.
// Source: prober/prober_manager.go AddPod.
func (s *State) hasProbe(i, w int) bool {
	return s.probeSpec(i, w).Handler != NoHandler && s.spec.kind(i) != initial
}

// notice: the prober sees a new incarnation in the published status only.
func (s *State) notice(i int) {
	c := &s.c[i]
	c.seen = true
	c.started = !s.hasProbe(i, startupProbe)
	for w := range c.probes {
		if s.hasProbe(i, w) {
			c.probes[w].result, c.probes[w].clock = first[w], s.probing
		}
	}
	s.scheduleProbes(i, s.now)
}

// scheduleProbes sets when each probe runs next. Until the container is
// started, only the startup probe runs, and afterwards only the others.
func (s *State) scheduleProbes(i int, from time.Duration) {
	c := &s.c[i]
	for w := range c.probes {
		p := &c.probes[w]
		active := s.hasProbe(i, w) && c.seen && c.run == running && !p.onHold && c.started != (w == startupProbe)
		switch {
		case !active:
			p.due = never
		case p.due == never && p.expires == never:
			p.due = s.firstProbe(i, w, from)
		}
	}
}

// firstProbe: probes run at whole periods since the pod's first pass, not since
// the container's start; the delay is counted from that start.
// Source: prober/worker.go run, doProbe.
func (s *State) firstProbe(i, w int, from time.Duration) time.Duration {
	spec := s.probeSpec(i, w)
	return s.c[i].probes[w].nextTick(spec.Period, max(s.c[i].startedAt+spec.InitialDelay, from))
}

// probeUnready: each pass runs the readiness probes of the active ones that are not ready, and
// their periods are counted from then on. Within the initial delay only that.
// Source: prober_manager.go UpdatePodStatus; prober/worker.go run.
func (s *State) probeUnready() {
	for i := range s.c {
		p := &s.c[i].probes[readinessProbe]
		switch {
		case p.result == success:
		case p.expires != never:
			p.again = true
		case p.due != never:
			p.clock, p.due = s.now, s.now
			if spec := s.probeSpec(i, readinessProbe); s.c[i].startedAt+spec.InitialDelay > s.now {
				p.due = s.firstProbe(i, readinessProbe, s.now)
			}
		}
	}
}

// nextTick is the first whole period of the probe's clock that is not before t.
func (p *probe) nextTick(period, t time.Duration) time.Duration {
	n := (t - p.clock + period - 1) / period
	return p.clock + n*period
}

func (s *State) probeNow(i, w int) {
	p, spec := &s.c[i].probes[w], s.probeSpec(i, w)
	p.due, p.expires, p.sent = never, s.now+spec.Timeout, s.now
	s.do(Action{Kind: RunProbe, Container: s.name(i), Which: probeKinds[w], Handler: spec.Handler, Timeout: spec.Timeout})
}

// neverFails is the largest failureThreshold of the API: that many failures in a row take 68
// years at a second each, and so they are not counted.
const neverFails = math.MaxInt32

// probeAnswered counts an answer; no answer in time is a failure. A verdict needs
// as many equal answers in a row as the threshold.
func (s *State) probeAnswered(i int, which Which, ok bool) {
	w := slices.Index(probeKinds[:], which)
	if w < 0 || s.c[i].probes[w].expires == never {
		return
	}
	p, spec := &s.c[i].probes[w], s.probeSpec(i, w)
	p.expires = never
	answer, threshold := failure, spec.Failures
	if ok {
		answer, threshold = success, spec.Successes
	}
	if p.last != answer {
		p.last, p.row = answer, 0
	}
	p.row = min(p.row+1, threshold)
	if threshold == neverFails {
		p.row = 0
	}
	p.scheduleNext(spec.Period, s.now)
	if p.row == threshold && s.c[i].run == running {
		s.verdict(i, w, answer)
	}
	s.scheduleProbes(i, s.now+1) // the others' period that began with this one has passed
}

// scheduleNext: a period that has begun while the probe ran counts, once; a probe that a
// pass requested comes first.
// Source: prober/worker.go run; a time.Ticker keeps one tick.
func (p *probe) scheduleNext(period, now time.Duration) {
	p.due = max(p.nextTick(period, p.sent+1), now)
	if p.again {
		p.again, p.due, p.clock = false, now, now
	}
}

// verdict: a change wakes the worker. After a failure of liveness, and after any
// verdict of startup, the container is not probed again until it is restarted.
func (s *State) verdict(i, w int, r result) {
	c := &s.c[i]
	p := &c.probes[w]
	changed := p.result != r
	p.result = r
	if w == startupProbe || w == livenessProbe && r == failure {
		p.onHold, p.row = true, 0
	}
	if w == startupProbe && r == success {
		c.started = true
	}
	if !changed || w == livenessProbe && r == success {
		return
	}
	s.wakeAt(s.now)
	s.publishReadiness()
}

// stopProbing: liveness and startup probes end with the deletion of the pod, so
// that nothing notices a container that hangs while it stops.
// Source: prober/prober_manager.go StopLivenessAndStartup.
func (s *State) stopProbing() {
	for i := range s.c {
		for _, w := range []int{startupProbe, livenessProbe} {
			p := &s.c[i].probes[w]
			p.onHold, p.due, p.expires = true, never, never
		}
		s.scheduleProbes(i, s.now)
	}
}
