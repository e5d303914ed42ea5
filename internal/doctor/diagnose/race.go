package diagnose

import (
	"fmt"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/unready"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// startupRace finds calls that were refused because the proxy did not listen yet.
func startupRace(s *subject) (out []result.Finding) {
	for _, app := range s.Apps {
		f, y, found := s.race(app)
		if !found || f.Confidence == result.Possible {
			if e, of, is := s.earlyRace(app); is && (!found || e.Confidence != result.Possible) {
				f, y, found = e, of, true
			}
		}
		if !found {
			continue
		}
		e, waits := s.AwaitsProxy(app.Name)
		why, held := s.holdWithoutEffect()
		switch {
		case s.Unborn != nil:
			f.Sentence = fmt.Sprintf("%s made a captured call, %s: %s, to which it goes, has never run", app.Name, s.EffectOf(y), s.Proxy.Name)
			f.Remedy.Sentence = fmt.Sprintf("see first why %s does not start", s.Proxy.Name)
		case waits && e.By == startup.Hold:
			s.failedOpen(&f, app, y)
		case held:
			f.Code = "hold-without-effect"
			f.Sentence = fmt.Sprintf("the hold of %s is set and has no effect: %s made a call before its proxy was ready, %s", s.Proxy.Name, app.Name, s.EffectOf(y))
			f.Evidence = append(f.Evidence, why)
			s.wait(&f, app, y, remedies.Stronger)
			f.Remedy.Sentence = "recreate the pod, so that it is injected with the hold that is set; or " + f.Remedy.Sentence
		default:
			s.wait(&f, app, y, s.startPurpose())
		}
		out = append(out, f)
	}
	return out
}

// failedOpen changes the finding of a race for an application that a postStart hook should have held: the kubelet
// starts the next container even if that hook fails.
func (s *subject) failedOpen(f *result.Finding, app *evidence.Container, y calls.Call) {
	f.Code = "hold-fails-open"
	f.Sentence = fmt.Sprintf("the hold of %s failed open: %s started before its proxy was ready, %s", s.Proxy.Name, app.Name, s.EffectOf(y))
	f.Disproof = fmt.Sprintf("an end of the postStart hook of %s before %s started", s.Proxy.Name, app.Name)
	for _, v := range s.Events {
		if v.Container == s.Proxy.Name && v.Reason == "FailedPostStartHook" {
			f.Evidence, f.Confidence = append(f.Evidence, s.QuoteEvent(v, v.First, v.Message)), result.Certain
		}
	}
	s.wait(f, app, y, remedies.Stronger)
	s.neverServed(f)
	s.Gone(f)
}

// neverServed changes the remedy if no run of the proxy is known to have been ready: to wait longer helps only a proxy
// that needs longer.
func (s *subject) neverServed(f *result.Finding) {
	status := s.Status(s.Proxy.Name)
	if status != nil && status.Ready || slices.ContainsFunc(s.Serving, func(v facts.Service) bool { return v.Ready.At.Known() }) {
		return
	}
	if len(s.Proxy.Logs) == 0 {
		f.Remedy.Sentence = fmt.Sprintf("find out why %s was not ready in time (its log is not among the evidence); if it only needs longer, %s", s.Proxy.Name, f.Remedy.Sentence)
		return
	}
	f.Patch, f.Change, f.Replay = "", "", nil
	f.Remedy = finding.Remedy{
		Sentence: fmt.Sprintf("find out why %s does not get ready; that %s waits longer for it does not help", s.Proxy.Name, f.Container),
		Command:  s.Kubectl("logs %s -c %s", s.Object.Name, s.Proxy.Name),
	}
	for _, u := range unready.Reasons {
		for _, v := range s.Serving {
			if q := s.Said.In(v.Number, u.Said); len(q) > 0 {
				f.Evidence, u = append(f.Evidence, q[len(q)-1]), u.By(q[len(q)-1].Text)
				f.Remedy.Sentence = fmt.Sprintf("%s does not get ready since %s: %s", s.Proxy.Name, u.What, u.Remedy)
				return
			}
		}
	}
}

// holdWithoutEffect returns a quote about the annotation that requests Istio's hold, if the pod has no hold that is
// effective: the proxy has no postStart hook, or it is not the first container.
func (s *subject) holdWithoutEffect() (evidence.Quote, bool) {
	var config struct {
		Hold bool `json:"holdApplicationUntilProxyStarts"`
	}
	text := s.Object.Annotations[contract.ProxyConfig]
	if manifest.DecodeAnnotation(text, &config) != nil || !config.Hold || s.Proxy.Kind != startup.Plain || s.Omitted.Hooks {
		return evidence.Quote{}, false
	}
	spec := s.Spec(s.Proxy.Name)
	why := fmt.Sprintf("%s has no postStart hook", s.Proxy.Name)
	if spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
		if s.Object.Spec.Containers[0].Name == s.Proxy.Name {
			return evidence.Quote{}, false
		}
		why = fmt.Sprintf("%s has the hook and is not the first container: those before it do not wait", s.Proxy.Name)
	}
	return s.Quote(evidence.Time{}, "the annotation %s requests the hold, but %s", contract.ProxyConfig, why), true
}

// race returns the most confident finding of a start-up race for one container, and the refused call on which it
// is based.
func (s *subject) race(app *evidence.Container) (result.Finding, calls.Call, bool) {
	return surest(s.Calls.By(app.Name, calls.Refused), func(y calls.Call) (result.Finding, bool) { return s.judge(app, y) })
}

// surest returns the most confident finding about some calls, the first of several, and its call; false: none is one.
func surest(all []calls.Call, judge func(calls.Call) (result.Finding, bool)) (best result.Finding, of calls.Call, found bool) {
	for _, y := range all {
		f, fits := judge(y)
		if fits && (!found || f.Confidence.Degree() > best.Confidence.Degree()) {
			best, of, found = f, y, true
		}
	}
	return best, of, found
}

// circumstances of a refused call count for or against a start-up race.
type circumstances struct {
	listened  doctor.Answer // the proxy, at the time of the call
	taken     doctor.Answer // the call, by the capture
	named     bool          // the log names the destination
	placed    bool          // the time zone of a log was assumed
	open      bool          // the capture leaves no destination out, or is not understood
	readyWhen bool          // it is known when the proxy was ready
	timed     bool          // it is known when the call was
	late      bool          // most proxies are ready so long after their start
	healed    bool          // the call ended its run, in the first seconds of a proxy of which no more is known, and a later run works
}

// A raceVerdict is a row of the table of verdicts.
type raceVerdict struct {
	why        string // of the confidence
	fits       func(circumstances) bool
	confidence result.Confidence
	quoted     bool // the capture is the only evidence that no proxy listened, and so is quoted
}

// raceVerdicts has the confidence of a start-up race: that of the first row that fits. Calls that were certainly not
// taken, or came when the proxy listened, are no race.
var raceVerdicts = []raceVerdict{
	{"the call came to the proxy's port before the proxy listened", func(c circumstances) bool {
		return c.listened == no && c.taken == yes && c.named && !c.placed
	}, result.Certain, false},
	{"it came before the proxy listened, and no setting leaves it out", func(c circumstances) bool {
		return c.listened == no && (c.taken == yes || c.open)
	}, result.Likely, false},
	{"no setting leaves it out, it came in the proxy's first seconds, and a later run works", func(c circumstances) bool {
		return c.taken == perhaps && c.open && c.named && c.healed
	}, result.Likely, false},
	{"perhaps the call was not captured", func(c circumstances) bool { return c.listened == no || c.taken == perhaps }, result.Possible, false},
	{"the clocks are not exact enough to order the two times", func(c circumstances) bool { return c.readyWhen && c.timed }, result.Possible, false},
	{"most proxies are ready by then", func(c circumstances) bool { return c.late }, result.Possible, false},
	{"a captured call is refused only while no proxy listens", func(circumstances) bool { return true }, result.Likely, true},
}

// judge decides whether a call was refused because the proxy did not listen.
func (s *subject) judge(app *evidence.Container, y calls.Call) (result.Finding, bool) {
	y, assumed := calls.Placed(s.Pod.Pod, y)
	if assumed == nil {
		assumed = s.ProxyZone
	}
	fate := s.FateOf(y)
	if fate.Taken == no || s.Capture.Parks || s.listensAnyway(fate, y) {
		return result.Finding{}, false
	}
	if fate.Taken == perhaps && !y.To.Known() && s.Capture.TakesAll() && s.alone(app) {
		fate.Taken = yes // in this pod only a captured call can have been refused
	}
	run, effect := s.Active(fate.Listening), s.EffectOf(y)
	if r := app.Run(y.Run); effect.Over != nil && (effect.GoesOn || r != nil && r.Exit != nil && *r.Exit == 0) {
		return result.Finding{}, false // its log says that the call succeeded later
	}
	f := result.Finding{
		Code: "startup-race", Container: app.Name,
		Sentence: fmt.Sprintf("startup race: %s made a call before its proxy was ready, %s", app.Name, effect),
		Evidence: append([]evidence.Quote{y.Quote}, fate.Because...),
		Disproof: fmt.Sprintf("a line of %s that says it was ready before %s, or a setting that leaves %s out of the capture", s.Proxy.Name, result.Instant(y.At), y.To),
	}
	switch {
	case run.Started.Known():
		f.Evidence = append(f.Evidence, s.Quote(run.Started, "%s started", s.Proxy.Name))
	case run.Opens.At.Known():
		f.Evidence = append(f.Evidence, run.Opens)
	default:
		f.Against = append(f.Against, s.Quote(evidence.Time{}, "when %s started is not in the evidence", s.Proxy.Name))
	}
	for _, q := range []*evidence.Quote{effect.WellSince, y.Named} {
		if q != nil {
			f.Evidence = append(f.Evidence, *q)
		}
	}
	if assumed != nil {
		f.Evidence = append(f.Evidence, *assumed)
	}
	c := circumstances{
		listened: fate.Answer, taken: fate.Taken, named: y.To.Known() && !y.Presumed, placed: assumed != nil, open: (s.Capture.Vague != "" || !s.Capture.LeavesOut()) && !s.Capture.Presumed,
		readyWhen: run.Ready.At.Known() && run.Ready.At.Error < evidence.SinceStart, timed: y.At.Known(), late: run.Late(y.At),
		healed: effect.Over == nil && !run.Ready.At.Known() && healed(app, y, run.Started),
	}
	verdict := raceVerdicts[slices.IndexFunc(raceVerdicts, func(r raceVerdict) bool { return r.fits(c) })]
	f.Confidence, f.Over = verdict.confidence, effect.Over != nil
	if verdict.quoted {
		f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "the capture sends %s to %s, where the kernel refuses it only while no proxy listens", y.To, s.Proxy.Name))
	}
	if fate.Taken == perhaps {
		f.Against = append(f.Against, s.Quote(evidence.Time{}, "%s", fate.WhyNot))
	}
	if effect.Over != nil {
		f.Against = append(f.Against, *effect.Over)
	}
	if effect.Recurs != nil {
		f.Against, f.Confidence = append(f.Against, *effect.Recurs), result.Possible
	}
	return f, true
}

// healed reports whether a call came soon after the start of the proxy, when few proxies listen, and a later run of its
// container works.
func healed(app *evidence.Container, y calls.Call, proxy evidence.Time) bool {
	last := app.Last()
	_, most, ok := y.At.Since(proxy)
	return ok && most < facts.Usual && last != nil && last.Running && last.Number > y.Run
}

// listensAnyway reports whether a refused call has another cause than a proxy that did not listen yet: it listened, or
// had ended during the run that made the call.
func (s *subject) listensAnyway(fate chain.Fate, y calls.Call) bool {
	if fate.Answer == yes || fate.Run < 0 {
		return s.Unborn == nil
	}
	var from evidence.Time
	if r := s.Container(y.Container).Run(y.Run); r != nil {
		from = r.Started
	}
	run := s.Serving[fate.Run]
	return s.DiedBetween(fate.Run, from, y.At) || !run.Stays(y.At) && run.Running
}

// alone reports whether the pod has no other application that this one could call.
func (s *subject) alone(app *evidence.Container) bool {
	return !slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool {
		return c != app && c != s.Proxy && c.Kind != startup.Init
	})
}
