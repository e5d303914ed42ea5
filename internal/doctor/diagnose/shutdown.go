package diagnose

import (
	"fmt"

	"outrider.dev/internal/doctor/diagnose/calls"
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
	if last.Stops.At.Known() && s.Proxy.Kind == startup.Plain { // the status does not report the proxy's end yet
		left = last.Stops
	}
	if !left.At.Known() {
		return nil
	}
	for _, app := range s.Apps {
		for _, y := range s.Calls.By(app.Name, calls.Refused, calls.Reset) {
			if f, found := s.afterProxy(app.Name, y, left); found {
				f.Evidence = append(f.Evidence, stops...)
				out = append(out, f)
				break
			}
		}
	}
	return out
}

// afterProxy returns the finding about a call that failed since the proxy had left, and false if it had another cause.
func (s *subject) afterProxy(app string, y calls.Call, left evidence.Quote) (result.Finding, bool) {
	last := s.Serving[len(s.Serving)-1]
	y, assumed := calls.Placed(s.Pod.Pod, y)
	takes, why := s.Capture.Takes(app, y.To)
	crashed := !last.Running && (last.Exit == nil || *last.Exit != 0 && last.Signal != 15 && *last.Exit != 143)
	after := y.At.Compare(left.At) == evidence.After || y.At.Known() && y.Last.Compare(left.At) == evidence.After
	// A captured call is refused only while no proxy listens. In a pod that is being deleted, a proxy that
	// has exited is not started again.
	within := s.Deleted() && takes == yes && y.At.Known() && y.At.Clock == left.At.Clock && y.At.Compare(left.At) != evidence.Before
	if takes == no || crashed || !after && !within {
		return result.Finding{}, false
	}
	f := result.Finding{
		Code: "shutdown-race", Container: app, Confidence: result.Certain,
		Sentence: fmt.Sprintf("shutdown race: %s ended while %s still made calls", s.Proxy.Name, app),
		Evidence: []evidence.Quote{left, y.Quote},
		Disproof: fmt.Sprintf("an end of %s before that of %s", app, s.Proxy.Name),
	}
	s.remedy(&f, remedies.Stop, s.Proxy.Name, app, y.To.Port)
	if last.Running { // it may still serve the connections that it has
		f.Sentence = fmt.Sprintf("shutdown race: %s was told to stop, and took no new calls, while %s still made some", s.Proxy.Name, app)
	}
	for _, c := range []string{s.Proxy.Name, app} {
		if e, failed := s.LastEvent(c, "FailedPreStopHook"); failed {
			f.Sentence += fmt.Sprintf("; the preStop hook of %s failed (%s)", c, s.HookSays(e))
			f.Evidence = append(f.Evidence, s.QuoteEvent(e, e.Last, "FailedPreStopHook: "+e.Message))
		}
	}
	if y.Named != nil {
		f.Evidence = append(f.Evidence, *y.Named)
	}
	if assumed != nil {
		f.Evidence, f.Confidence = append(f.Evidence, *assumed), result.Likely
	}
	switch {
	case takes == perhaps:
		f.Confidence, f.Against = result.Likely, []evidence.Quote{s.Quote(evidence.Time{}, "%s", why)}
	case !after, y.Presumed:
		f.Confidence = result.Likely // the clocks are not exact enough to order the two times
	}
	return f, true
}
