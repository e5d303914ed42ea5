package diagnose

import (
	"fmt"
	"regexp"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// An early is a row of the table of failures, other than a refusal, that a call has while its proxy is not ready.
type early struct {
	failure calls.Failure
	says    *regexp.Regexp // words that the line must have; nil: any
	not     *regexp.Regexp // words that it must not have: another program has answered; nil: none
	started bool           // a proxy that had not started cannot have caused it
	did     string         // after the application's name: what it did
}

// earlies has the failures. Before Envoy has its routes and certificates it resets connections, or answers with status 503;
// a proxy that answers DNS queries leaves them without an answer until it runs.
var earlies = []early{
	{failure: calls.Unresolved, not: regexp.MustCompile(`(?i)name or service not known|ENOTFOUND|no such host|does not resolve|nodename nor servname|NXDOMAIN`), did: "looked up a name"},
	{failure: calls.Reset, started: true, did: "made a call"},
	{failure: calls.TimedOut, started: true, did: "made a call"},
	{failure: calls.Unavailable, started: true, did: "made a call"},
	{failure: calls.Upstream, says: regexp.MustCompile(`(?i)no healthy upstream|not supplied by SDS`), started: true, did: "made a call"},
}

// earlyRace returns the most confident finding about a call that failed, other than by a refusal, since the proxy was not
// ready.
func (s *subject) earlyRace(app *evidence.Container) (result.Finding, calls.Call, bool) {
	var all []calls.Call
	by := map[calls.Failure]early{}
	for _, e := range earlies {
		all, by[e.failure] = append(all, s.Calls.By(app.Name, e.failure)...), e
	}
	return surest(all, func(y calls.Call) (result.Finding, bool) { return s.judgeEarly(app, by[y.Failure], y) })
}

// abort is SIGABRT, by which a runtime ends its own program after an error that nothing handles: .NET, C++, Rust.
const abort = 6

// judgeEarly decides whether a call failed since the proxy was not ready. The run must have ended by it: what goes on after
// such a failure is usual.
func (s *subject) judgeEarly(app *evidence.Container, e early, y calls.Call) (result.Finding, bool) {
	y, _ = calls.Placed(s.Pod.Pod, y)
	fate, effect := s.FateOf(y), s.EffectOf(y)
	text := y.Quote.Text
	name := e.failure == calls.Unresolved
	switch {
	case s.Proxy == nil, s.Capture.Parks, effect.Ended == nil && !s.DoneSince(app, y.Run), effect.Ended != nil && effect.Ended.Signal != 0 && effect.Ended.Signal != abort, effect.Recurs != nil, e.says != nil && !e.says.MatchString(text), e.not != nil && e.not.MatchString(text):
		return result.Finding{}, false
	case e.failure == calls.TimedOut && (!y.To.Known() || y.Presumed): // it may be no call
		return result.Finding{}, false
	case name && s.resolver() == "", !name && fate.Taken == no, s.listensAnyway(fate, y):
		return result.Finding{}, false
	}
	run := s.Active(fate.Listening)
	if e.started && y.At.Compare(run.Started) == evidence.Before {
		return result.Finding{}, false
	}
	f := result.Finding{Code: "startup-race", Container: app.Name, Evidence: append([]evidence.Quote{y.Quote}, fate.Because...)}
	switch well := healed(app, y, run.Started); {
	case fate.Answer == no, well && (name || y.To.Known() && !y.Presumed && fate.Taken == yes):
		f.Confidence = result.Likely
	case well:
		f.Confidence = result.Possible
	default:
		return result.Finding{}, false
	}
	role := ""
	if name {
		role = ", which answers its DNS queries,"
	}
	f.Sentence = fmt.Sprintf("startup race: %s %s before its proxy%s was ready, %s", app.Name, e.did, role, effect)
	f.Disproof = fmt.Sprintf("a line of %s that says it was ready before %s", s.Proxy.Name, result.Instant(y.At))
	if name {
		f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "%s", s.resolver()))
		f.Evidence = append(f.Evidence, s.Said.In(run.Number, facts.Answers)...)
	}
	if run.Started.Known() {
		f.Evidence = append(f.Evidence, s.Quote(run.Started, "%s started", s.Proxy.Name))
	}
	if effect.WellSince != nil {
		f.Evidence = append(f.Evidence, *effect.WellSince)
	}
	if f.Confidence == result.Possible {
		f.Against = append(f.Against, s.Quote(evidence.Time{}, "when %s was ready is not in the evidence, and what it called may have failed by itself", s.Proxy.Name))
	}
	return f, true
}

// resolver says why the pod's DNS queries go to its proxy: by a setting, or in a word of the proxy; empty: it is not known.
func (s *subject) resolver() string {
	if s.Capture.Resolves == "" && len(s.Said[facts.Answers]) > 0 {
		return fmt.Sprintf("%s answers DNS queries", s.Proxy.Name)
	}
	return s.Capture.Resolves
}
