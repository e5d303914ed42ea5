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
	onHold  bool          // it does not run again in this incarnation
	again   bool          // it is to run once more at once
	row     int           // how many answers in a row were like the last one
	clock   time.Duration // it runs at whole periods since then
	due     time.Duration // its next run; never: none
	sent    time.Duration // its last run
	expires time.Duration // a run is under way, and must end by then; never: none
}

// result is the result of a probe.
type result int8

const (
	unseen  result = iota // the prober has not seen this incarnation yet
	unknown               // it does, and has no verdict
	success
	failure
)

// first is the result of a probe before its first verdict.
// Source: prober/worker.go newWorker (initialValue).
var first = [...]result{startupProbe: unknown, livenessProbe: success, readinessProbe: failure}

// neverFails is the largest failureThreshold of the API: that many failures in a row take 68
// years at a second each, and so they are not counted.
const neverFails = math.MaxInt32

func newProbe() probe { return probe{due: never, expires: never} }

func (p *probe) notice(first result, clock time.Duration) { p.result, p.clock = first, clock }

// nextTick is the first whole period of the probe's clock that is not before t.
func (p *probe) nextTick(period, t time.Duration) time.Duration {
	n := (t - p.clock + period - 1) / period
	return p.clock + n*period
}

// schedule sets when an active probe runs next, from that time on, if that is not set yet.
// Probes run at whole periods since the pod's first pass, not since the container's start;
// the delay is counted from that start.
// Source: prober/worker.go run, doProbe.
func (p *probe) schedule(spec Probe, active bool, startedAt, from time.Duration) {
	switch {
	case !active || p.onHold:
		p.due = never
	case p.due == never && p.expires == never:
		p.due = p.nextTick(spec.Period, max(startedAt+spec.InitialDelay, from))
	}
}

// send begins a run.
func (p *probe) send(timeout, now time.Duration) {
	p.due, p.expires, p.sent = never, now+timeout, now
}

// answer counts an answer, and returns the verdict, or unseen: one needs as many equal
// answers in a row as the threshold.
func (p *probe) answer(spec Probe, ok bool, now time.Duration) result {
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
	p.scheduleNext(spec.Period, now)
	if p.row == threshold {
		return answer
	}
	return unseen
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

// conclude sets the result, and reports whether it is another one.
func (p *probe) conclude(r result, forGood bool) bool {
	changed := p.result != r
	p.result = r
	if forGood {
		p.onHold, p.row = true, 0
	}
	return changed
}

// runSoon: a pass runs a readiness probe that is active and does not succeed, and its
// periods are counted from then on. Within the initial delay only that.
// Source: prober_manager.go UpdatePodStatus; prober/worker.go run.
func (p *probe) runSoon(spec Probe, startedAt, now time.Duration) {
	switch {
	case p.result == success:
	case p.expires != never:
		p.again = true
	case p.due != never:
		p.clock, p.due = now, now
		if begins := startedAt + spec.InitialDelay; begins > now {
			p.due = p.nextTick(spec.Period, begins)
		}
	}
}

func (p *probe) stop() { p.onHold, p.due, p.expires = true, never, never }

// probes are those of the running incarnation of a container.
type probes struct {
	seen    bool // the incarnation is in the published status, where the prober sees it
	started bool // as in the API: its startup probe, if any, succeeded
	of      [3]probe
}

func newProbes() probes {
	return probes{of: [3]probe{newProbe(), newProbe(), newProbe()}}
}

// reset is for the end of the incarnation.
func (p *probes) reset() { *p = newProbes() }

// notice: the prober sees a new incarnation in the published status only.
func (p *probes) notice(spec *[3]Probe, clock, startedAt, now time.Duration) {
	p.seen, p.started = true, spec[startupProbe].Handler == NoHandler
	for w := range p.of {
		if spec[w].Handler != NoHandler {
			p.of[w].notice(first[w], clock)
		}
	}
	p.schedule(spec, startedAt, now)
}

// schedule sets when each probe runs next. Until the container is started, only the
// startup probe runs, and afterwards only the others.
func (p *probes) schedule(spec *[3]Probe, startedAt, from time.Duration) {
	for w := range p.of {
		active := spec[w].Handler != NoHandler && p.seen && p.started != (w == startupProbe)
		p.of[w].schedule(spec[w], active, startedAt, from)
	}
}

// conclude sets a verdict, and reports whether it is news for the worker. After a failure
// of liveness, and after any verdict of startup, the container is not probed again until it
// is restarted.
func (p *probes) conclude(w int, r result) bool {
	changed := p.of[w].conclude(r, w == startupProbe || w == livenessProbe && r == failure)
	if w == startupProbe && r == success {
		p.started = true
	}
	return changed && (w != livenessProbe || r == failure)
}

// stop ends liveness and startup probes when the pod is deleted, so that nothing notices
// a container that hangs while it stops.
// Source: prober/prober_manager.go StopLivenessAndStartup.
func (p *probes) stop() {
	p.of[startupProbe].stop()
	p.of[livenessProbe].stop()
}

// ready is whether readiness has succeeded, if it is probed.
func (p *probes) ready(spec *[3]Probe) bool {
	return p.seen && p.started && (spec[readinessProbe].Handler == NoHandler || p.of[readinessProbe].result == success)
}

// failed names the probe for which a running container is to be killed.
func (p *probes) failed() Which {
	switch {
	case p.of[livenessProbe].result == failure:
		return Liveness
	case p.of[startupProbe].result == failure:
		return Startup
	default:
		return ""
	}
}

func (s *State) probeNow(i, w int) {
	spec := s.spec.probes[i][w]
	s.c[i].probes.of[w].send(spec.Timeout, s.now)
	s.do(Action{Kind: RunProbe, Container: s.name(i), Which: probeKinds[w], Handler: spec.Handler, Timeout: spec.Timeout})
}

// probeAnswered: no answer in time is a failure. A verdict that is news wakes the worker.
func (s *State) probeAnswered(i int, which Which, ok bool) {
	p, spec, w := &s.c[i].probes, &s.spec.probes[i], slices.Index(probeKinds[:], which)
	if w < 0 || p.of[w].expires == never {
		return
	}
	if verdict := p.of[w].answer(spec[w], ok, s.now); verdict != unseen && p.conclude(w, verdict) {
		s.schedule.wakeAt(s.now)
		s.publishReadiness()
	}
	p.schedule(spec, s.c[i].life.startedAt, s.now+1) // the others' period that began with this one has passed
}
