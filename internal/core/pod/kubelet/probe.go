package kubelet

import (
	"math"
	"slices"
	"time"
)

// Indexes of the probes of a container.
const (
	startupProbe = iota
	livenessProbe
	readinessProbe
)

var probeKinds = [...]Which{Startup, Liveness, Readiness}

// A probe is the state of one probe of the running container.
// Source: prober/worker.go.
type probe struct {
	result  result
	last    result        // the last answer; the number of such answers may still be below the threshold
	onHold  bool          // it does not run again for this incarnation of the container
	again   bool          // another run was requested for the end of the present one
	row     int           // number of consecutive answers equal to last
	clock   time.Duration // runs are due at this time and at each whole period after it
	due     time.Duration // time of the next run; never if none is scheduled
	sent    time.Duration // time of the last run
	expires time.Duration // time by which the run under way must be answered; never if none is under way
}

// result is the result of a probe as the kubelet uses it.
type result int8

const (
	unseen  result = iota // the prober does not know this incarnation of the container yet
	unknown               // the prober knows it, but no threshold has been reached
	success
	failure
)

// first holds the initial results of the probes.
// Source: prober/worker.go newWorker (initialValue).
var first = [...]result{startupProbe: unknown, livenessProbe: success, readinessProbe: failure}

// neverFails is the largest failureThreshold of the API. At one failure per second it is reached after 68 years,
// so failures are not counted.
const neverFails = math.MaxInt32

func newProbe() probe { return probe{due: never, expires: never} }

func (p *probe) notice(first result, clock time.Duration) { p.result, p.clock = first, clock }

// nextTick returns the first time at or after t that is a whole number of periods after the probe's clock.
func (p *probe) nextTick(period, t time.Duration) time.Duration {
	n := (t - p.clock + period - 1) / period
	return p.clock + n*period
}

// schedule sets the time of the next run of an active probe, which is not before the time from. It does nothing
// if a run is already scheduled or under way. Runs are at whole periods after the pod's first pass, not after
// the container's start; only the initial delay counts from that start. Source: prober/worker.go run, doProbe.
func (p *probe) schedule(spec Probe, active bool, startedAt, from time.Duration) {
	switch {
	case !active || p.onHold:
		p.due = never
	case p.due == never && p.expires == never:
		p.due = p.nextTick(spec.Period, max(startedAt+spec.InitialDelay, from))
	}
}

// send starts a run of the probe.
func (p *probe) send(timeout, now time.Duration) {
	p.due, p.expires, p.sent = never, now+timeout, now
}

// answer counts an answer. If the number of equal consecutive answers has reached the threshold, it returns the
// new result, otherwise [unseen].
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

// scheduleNext sets the time of the next run after an answer. If a period began during the run, the next run is
// due at once. If a pass has requested a run, that run is due at once and restarts the periods.
// Source: prober/worker.go run; a time.Ticker keeps one tick.
func (p *probe) scheduleNext(period, now time.Duration) {
	p.due = max(p.nextTick(period, p.sent+1), now)
	if p.again {
		p.again, p.due, p.clock = false, now, now
	}
}

// conclude sets the result, and returns whether it changed. If forGood is true, the probe does not run again.
func (p *probe) conclude(r result, forGood bool) bool {
	changed := p.result != r
	p.result = r
	if forGood {
		p.onHold, p.row = true, 0
	}
	return changed
}

// runSoon makes an active readiness probe run at once and restarts its periods from now, unless its result is
// success. Each pass calls it. During the initial delay it only restarts the periods.
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

// probes holds the states of the probes of a running container.
type probes struct {
	seen    bool // this incarnation of the container is in the published status, from which the prober knows it
	started bool // as in the API: the startup probe has succeeded, or there is none
	of      [3]probe
}

func newProbes() probes {
	return probes{of: [3]probe{newProbe(), newProbe(), newProbe()}}
}

// reset removes the state when the container has ended.
func (p *probes) reset() { *p = newProbes() }

// notice initializes the probes of a new incarnation of the container, when it appears in the published status.
func (p *probes) notice(spec *[3]Probe, clock, startedAt, now time.Duration) {
	p.seen, p.started = true, spec[startupProbe].Handler == NoHandler
	for w := range p.of {
		if spec[w].Handler != NoHandler {
			p.of[w].notice(first[w], clock)
		}
	}
	p.schedule(spec, startedAt, now)
}

// schedule sets the time of the next run of each probe. Until the container is started only the startup probe
// runs, after that only the others.
func (p *probes) schedule(spec *[3]Probe, startedAt, from time.Duration) {
	for w := range p.of {
		active := spec[w].Handler != NoHandler && p.seen && p.started != (w == startupProbe)
		p.of[w].schedule(spec[w], active, startedAt, from)
	}
}

// conclude sets the result of a probe, and returns whether the worker must react to that. After a failure of the
// liveness probe, and after any result of the startup probe, the probe does not run again until the container is
// restarted.
func (p *probes) conclude(w int, r result) bool {
	changed := p.of[w].conclude(r, w == startupProbe || w == livenessProbe && r == failure)
	if w == startupProbe && r == success {
		p.started = true
	}
	return changed && (w != livenessProbe || r == failure)
}

// stop ends the startup and liveness probes when the pod is deleted. So a container that hangs while it stops is
// not detected.
// Source: prober/prober_manager.go StopLivenessAndStartup.
func (p *probes) stop() {
	p.of[startupProbe].stop()
	p.of[livenessProbe].stop()
}

// ready reports whether the container has started and its readiness probe, if any, has succeeded.
func (p *probes) ready(spec *[3]Probe) bool {
	return p.seen && p.started && (spec[readinessProbe].Handler == NoHandler || p.of[readinessProbe].result == success)
}

// failed returns the probe whose failure requires that the running container is killed; empty if there is none.
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

// probeAnswered handles the answer of a probe, or the lack of one within the timeout, which is a failure. If the
// result changes, another pass begins.
func (s *State) probeAnswered(i int, which Which, ok bool) {
	p, spec, w := &s.c[i].probes, &s.spec.probes[i], slices.Index(probeKinds[:], which)
	if w < 0 || p.of[w].expires == never {
		return
	}
	if verdict := p.of[w].answer(spec[w], ok, s.now); verdict != unseen && p.conclude(w, verdict) {
		s.schedule.wakeAt(s.now)
		s.publishReadiness()
	}
	p.schedule(spec, s.c[i].life.startedAt, s.now+1) // s.now+1: the other probes do not run in the period that began just now
}
