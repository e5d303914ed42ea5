package diagnose

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// shutdownRace finds calls that failed because the proxy had exited before the application.
func shutdownRace(s *subject) (out []result.Finding) {
	if s.Proxy == nil || len(s.Serving) == 0 || s.HookFailed() {
		return nil
	}
	last := s.Serving[len(s.Serving)-1]
	if !s.Deleted() && len(s.Said.In(last.Number, facts.Crash)) > 0 {
		return nil // the pod is not being stopped: its proxy died
	}
	stops := s.Said.In(last.Number, facts.Stops)
	left := s.Quote(last.Finished, "%s ended", s.Proxy.Name)
	if s.Proxy.Kind == startup.Plain { // the status does not report the proxy's end yet
		switch stop, is := s.Stopped(); {
		case last.Stops.At.Known():
			left = last.Stops
		case !left.At.Known() && is && s.Deleted():
			left = stop
			left.At = chain.OnClock(left.At)
		}
	}
	if !left.At.Known() {
		return nil
	}
	for _, app := range s.Apps {
		f, _, found := surest(s.Calls.By(app.Name, calls.Refused, calls.Reset), func(y calls.Call) (result.Finding, bool) { return s.afterProxy(app.Name, y, left) })
		if found {
			f.Evidence = append(f.Evidence, stops...)
			out = append(out, f)
		} else if f, left := s.leftItsProxy(app); left {
			out = append(out, f)
		}
	}
	return out
}

// leftItsProxy returns the finding about an application that had ended when its proxy still took requests for it.
func (s *subject) leftItsProxy(app *evidence.Container) (result.Finding, bool) {
	r, last := app.Last(), s.Serving[len(s.Serving)-1]
	if r == nil || !r.Finished.Known() || !s.Deleted() {
		return result.Finding{}, false
	}
	f := result.Finding{
		Code: "shutdown-race", Container: app.Name, Confidence: result.Likely,
		Sentence: fmt.Sprintf("shutdown race: %s ended while %s still took requests for it, which failed", app.Name, s.Proxy.Name),
		Evidence: []evidence.Quote{s.Quote(r.Finished, "%s ended: %s", app.Name, facts.ExitText(*r))},
		Disproof: fmt.Sprintf("an end of %s after the last of these requests", app.Name),
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("let %s serve some seconds longer when the pod is deleted, until no other pod calls it (a preStop hook that sleeps), and end its requests at SIGTERM before it exits", app.Name)},
	}
	for _, q := range s.Said.In(last.Number, facts.Unreached) {
		if strings.Contains(q.Text, "inbound|") && q.At.Compare(r.Finished) != evidence.Before {
			f.Evidence = append(f.Evidence, q)
		}
	}
	return f, len(f.Evidence) > 1
}

// A stopped has the order of a failed call and of the end of the proxy, as far as it is known.
type stopped struct {
	after doctor.Answer // the call came after that end
	since doctor.Answer // it came after the kubelet had told all containers to end
	quit  bool          // the script of the caller ended the proxy before
	taken doctor.Answer // the call, by the capture
}

// stopVerdicts has the confidence that a call failed since the proxy had left: of the first row that fits. A captured call
// is refused only while no proxy listens, and a proxy that has left a pod that ends is not started again.
var stopVerdicts = []struct {
	fits       func(stopped) bool
	confidence result.Confidence
}{
	{func(c stopped) bool { return c.after == yes && c.taken == yes }, result.Certain},
	{func(c stopped) bool { return c.after == yes }, result.Likely},
	{func(c stopped) bool { return c.after == perhaps && (c.since == yes || c.quit) }, result.Likely},
	{func(c stopped) bool { return c.after == perhaps && c.since == perhaps && c.taken == yes }, result.Possible},
}

// afterProxy returns the finding about a call that failed since the proxy had left, and false if it had another cause.
func (s *subject) afterProxy(app string, y calls.Call, left evidence.Quote) (result.Finding, bool) {
	last := s.Serving[len(s.Serving)-1]
	y, assumed := calls.Placed(s.Pod.Pod, y)
	takes, why := s.Capture.Takes(app, y.To)
	if crashed := !last.Running && (last.Exit == nil || *last.Exit != 0 && last.Signal != 15 && *last.Exit != 143); takes == no || crashed {
		return result.Finding{}, false
	}
	r := s.Container(app).Run(y.Run)
	if s.LeftEarlier(left.At, r) || s.YetUnready(y, last) {
		return result.Finding{}, false
	}
	since, because := s.SinceStop(y)
	next, quits := s.quitEarly(app, s.Proxy.Name)
	c := stopped{after: s.order(y, left.At), since: since, quit: quits && s.endsItsLog(y), taken: takes}
	if outlived := r != nil && r.Finished.Compare(left.At) != evidence.Before; outlived && y.Undated && c.after == no && (c.quit || since == yes) {
		c.after = perhaps // its time is of a line before it
	}
	f := result.Finding{
		Code: "shutdown-race", Container: app,
		Sentence: fmt.Sprintf("shutdown race: %s ended while %s still made calls", s.Proxy.Name, app),
		Evidence: []evidence.Quote{left, y.Quote},
		Disproof: fmt.Sprintf("an end of %s before that of %s", app, s.Proxy.Name),
	}
	for _, v := range stopVerdicts {
		if v.fits(c) {
			f.Confidence = v.confidence
			break
		}
	}
	if f.Confidence == "" {
		return result.Finding{}, false
	}
	if s.Deleted() && r != nil && r.Started.Known() && r.Started.Compare(left.At) != evidence.Before {
		f.Confidence = result.Possible // the proxy may have ended before the pod was deleted
	}
	s.remedy(&f, remedies.Stop, s.Proxy.Name, app, y.To.Port)
	if last.Running { // it may still serve the connections that it has
		f.Sentence = fmt.Sprintf("shutdown race: %s was told to stop, and took no new calls, while %s still made some", s.Proxy.Name, app)
	}
	if quits {
		s.callsAfterQuit(&f, s.Proxy.Name, next)
	} else if asker, asked := s.askedToEnd(s.Proxy.Name, app); asked && c.after == yes {
		s.endedByOther(&f, s.Proxy.Name, asker)
	}
	for _, c := range []string{s.Proxy.Name, app} {
		if e, failed := s.LastEvent(c, "FailedPreStopHook"); failed {
			f.Sentence += fmt.Sprintf("; the preStop hook of %s failed (%s)", c, s.HookSays(e.Message))
			f.Evidence = append(f.Evidence, s.QuoteEvent(e, e.Last, "FailedPreStopHook: "+e.Message))
		}
	}
	if c.after != yes {
		f.Evidence = append(f.Evidence, because...)
	}
	told := last.Finished.Known() || last.Stops.At.Known() // by its own state, log or event, and not as all containers are
	if f.Confidence == result.Certain && (assumed != nil || y.Presumed || !told) {
		f.Confidence = result.Likely
	}
	f.Evidence = append(f.Evidence, present(assumed, y.Named)...)
	if takes == perhaps {
		f.Against = []evidence.Quote{s.Quote(evidence.Time{}, "%s", why)}
	}
	return f, true
}

// present returns the quotes that there are.
func present(all ...*evidence.Quote) (out []evidence.Quote) {
	for _, q := range all {
		if q != nil {
			out = append(out, *q)
		}
	}
	return out
}

// order says whether a call, or its last repetition, came after an end; perhaps: the times do not tell.
func (s *subject) order(y calls.Call, left evidence.Time) doctor.Answer {
	switch {
	case y.At.Compare(left) == evidence.After, y.At.Known() && y.Last.Compare(left) == evidence.After:
		return yes
	case y.At.Known() && y.Last.Compare(left) == evidence.Before:
		return no
	}
	return perhaps
}

// endsItsLog reports whether a call is in the last lines of the log of a run that failed.
func (s *subject) endsItsLog(y calls.Call) bool {
	const few = 3
	lines, r := s.LastLines(y.Container, y.Run, few), s.Container(y.Container).Run(y.Run)
	return r != nil && r.Exit != nil && *r.Exit != 0 && len(lines) > 0 && y.Quote.Source.Line+y.More >= lines[0].Source.Line
}

// quitEarly returns the statement of a container's script that comes after the one by which it ends a helper, and false if
// its script does not, or the helper has not ended by a request.
func (s *subject) quitEarly(container, helper string) (next string, quits bool) {
	spec, h := s.Spec(container), s.Spec(helper)
	if spec == nil || h == nil || !s.endedByRequest(helper, s.Container(helper).Last()) || !podspec.EndedByOthers(s.Object, h) {
		return "", false
	}
	next = podspec.AfterQuit(spec)
	return next, next != ""
}

// endedByRequest reports whether a run ended as it does when another program asks for it, in a pod that should end.
func (s *subject) endedByRequest(helper string, r *evidence.Run) bool {
	return r != nil && s.ShouldEnd() && s.EndedByStop(helper, *r) == no && r.Exit != nil && (*r.Exit == 0 || r.Signal == 15)
}

// toldToQuit reports whether a run of the proxy ended since a program of the pod asked for it: by its log, or by the script
// of another container.
func (s *subject) toldToQuit(r evidence.Run) bool {
	return s.endedByRequest(s.Proxy.Name, &r) && (len(s.Said.In(r.Number, facts.Stops)) > 0 || podspec.EndedByOthers(s.Object, s.Spec(s.Proxy.Name)))
}

// callsAfterQuit changes the finding of a shutdown race to the order of a script.
func (s *subject) callsAfterQuit(f *result.Finding, helper, next string) {
	next = chain.Short(s.Show([]byte(next)))
	f.Sentence = fmt.Sprintf("shutdown race: the script of %s ends %s, and goes on: %s", f.Container, helper, next)
	f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "the script of %s ends %s before: %s", f.Container, helper, next))
	f.Disproof = fmt.Sprintf("a call of %s that succeeded after the end of %s", f.Container, helper)
	f.Patch, f.Change, f.Replay = "", "", nil
	f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("let the script of %s end %s as its last step, after the calls that need it (trap on EXIT), or make %s a native sidecar and leave that step out", f.Container, helper, helper)}
}

// askedToEnd returns the container, other than a caller, that asked a helper to end by a request of its script, and false if
// none did, several may have, or the helper says that a signal ended it. Who asks ends soon after it, or runs on.
func (s *subject) askedToEnd(helper, caller string) (asker string, asked bool) {
	h, last := s.Spec(helper), s.Container(helper).Last()
	if h == nil || !s.endedByRequest(helper, last) || !podspec.EndedByOthers(s.Object, h) {
		return "", false
	}
	if stop, told := s.Stops(helper); told && chain.BySignal.MatchString(stop.Text) {
		return "", false
	}
	for i := range s.Object.Spec.Containers {
		c := &s.Object.Spec.Containers[i]
		if c.Name == helper || c.Name == caller || !podspec.QuitsProxy(c) {
			continue
		}
		if asker != "" {
			return "", false
		}
		asker = c.Name
	}
	if asker == "" || s.Container(asker).Last() == nil {
		return "", false
	}
	least, _, ended := last.Finished.Since(s.Container(asker).Last().Finished)
	return asker, !ended || least <= time.Minute
}

// byRequest matches words of a program that ends since it was asked to by a request.
var byRequest = regexp.MustCompile(`(?i)quitquitquit|\brequest|/shutdown|/exit`)

// endedByOther changes the finding of a shutdown race to the container that asked the helper to end.
func (s *subject) endedByOther(f *result.Finding, helper, asker string) {
	f.Sentence = fmt.Sprintf("shutdown race: %s asked %s to end while %s still called it", asker, helper, f.Container)
	f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "%s is set to ask %s to end", asker, helper))
	stop, told := s.Stops(helper)
	if told {
		f.Evidence = append(f.Evidence, stop)
	}
	if !byRequest.MatchString(stop.Text) && f.Confidence == result.Certain {
		f.Confidence = result.Likely
	}
	f.Disproof = fmt.Sprintf("another reason for the end of %s in its log", helper)
	f.Patch, f.Change, f.Replay = "", "", nil
	f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("let %s be asked to end only when %s has ended too, or make %s a native sidecar and leave the request of %s out", helper, f.Container, helper, asker)}
}
