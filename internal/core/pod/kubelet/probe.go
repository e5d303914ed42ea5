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

// A probe is the state of one probe of the running incarnation.
// Source: prober/worker.go.
type probe struct {
	result  result
	last    result        // the last answer, which may not have reached a threshold
	onHold  bool          // no further run in this incarnation
	again   bool          // run once more at once
	row     int           // number of equal answers in a row
	clock   time.Duration // runs are due at whole periods after this time
	due     time.Duration // the next run; never: none
	sent    time.Duration // the last run
	expires time.Duration // the run under way must answer by then; never: no run is under way
}

// result is the verdict of a probe.
type result int8

const (
	unseen  result = iota // the prober has not seen this incarnation yet
	unknown               // it has, but there is no verdict yet
	success
	failure
)

// first lists the results of the probes before their first verdict.
// Source: prober/worker.go newWorker (initialValue).
var first = [...]result{startupProbe: unknown, livenessProbe: success, readinessProbe: failure}

// neverFails is the largest failureThreshold of the API. So many failures in a row take 68 years at one a
// second, so they are not counted.
const neverFails = math.MaxInt32

func newProbe() probe { return probe{due: never, expires: never} }

func (p *probe) notice(first result, clock time.Duration) { p.result, p.clock = first, clock }

// nextTick returns the first tick of the probe's clock at or after t.
func (p *probe) nextTick(period, t time.Duration) time.Duration {
	n := (t - p.clock + period - 1) / period
	return p.clock + n*period
}

// schedule sets the next run of an active probe, not before from, unless a run is already set or under way.
// Runs are at whole periods after the pod's first pass, not after the container's start; only the initial
// delay counts from that start.
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

// answer counts an answer. It returns a verdict once as many equal answers in a row have come as the
// threshold asks, and unseen before.
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

// scheduleNext sets the next run after an answer. If a period began while the probe ran, one run for it is
// due at once, but a run that a pass requested comes first.
// Source: prober/worker.go run; a time.Ticker keeps one tick.
func (p *probe) scheduleNext(period, now time.Duration) {
	p.due = max(p.nextTick(period, p.sent+1), now)
	if p.again {
		p.again, p.due, p.clock = false, now, now
	}
}

// conclude sets the result, and reports whether it changed.
func (p *probe) conclude(r result, forGood bool) bool {
	changed := p.result != r
	p.result = r
	if forGood {
		p.onHold, p.row = true, 0
	}
	return changed
}

// runSoon runs an active readiness probe at once if it does not succeed yet, and restarts its periods from
// now. It is called by a pass. During the initial delay it only restarts the periods.
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

// probes holds the probes of the running incarnation of a container.
type probes struct {
	seen    bool // the incarnation is in the published status, where the prober sees it
	started bool // as in the API: its startup probe has succeeded, or it has none
	of      [3]probe
}

func newProbes() probes {
	return probes{of: [3]probe{newProbe(), newProbe(), newProbe()}}
}

// reset forgets the incarnation, which has ended.
func (p *probes) reset() { *p = newProbes() }

// notice tells the prober of a new incarnation, which it learns only from the published status.
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

// conclude sets a verdict, and reports whether the worker must react to it. After a liveness failure, and
// after any verdict of the startup probe, that probe does not run again until the container is restarted.
func (p *probes) conclude(w int, r result) bool {
	changed := p.of[w].conclude(r, w == startupProbe || w == livenessProbe && r == failure)
	if w == startupProbe && r == success {
		p.started = true
	}
	return changed && (w != livenessProbe || r == failure)
}

// stop ends the startup and liveness probes when the pod is deleted. From then on nothing notices a
// container that hangs while it stops.
// Source: prober/prober_manager.go StopLivenessAndStartup.
func (p *probes) stop() {
	p.of[startupProbe].stop()
	p.of[livenessProbe].stop()
}

// ready reports whether the container has started and its readiness probe, if any, has succeeded.
func (p *probes) ready(spec *[3]Probe) bool {
	return p.seen && p.started && (spec[readinessProbe].Handler == NoHandler || p.of[readinessProbe].result == success)
}

// failed returns the probe because of which a running container must be killed; empty if there is none.
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

// probeAnswered handles the answer of a probe; no answer in time is a failure. A changed verdict wakes the
// worker.
func (s *State) probeAnswered(i int, which Which, ok bool) {
	p, spec, w := &s.c[i].probes, &s.spec.probes[i], slices.Index(probeKinds[:], which)
	if w < 0 || p.of[w].expires == never {
		return
	}
	if verdict := p.of[w].answer(spec[w], ok, s.now); verdict != unseen && p.conclude(w, verdict) {
		s.schedule.wakeAt(s.now)
		s.publishReadiness()
	}
	p.schedule(spec, s.c[i].life.startedAt, s.now+1) // the period that began with this answer is over for the other probes
}
