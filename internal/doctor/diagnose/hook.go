package diagnose

import (
	"fmt"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/unready"
	"outrider.dev/internal/doctor/evidence"
)

// hookFails finds containers that the kubelet ends since the command of their postStart hook fails. The hook of a proxy
// that holds the applications is left to the rules about the proxy, unless its command could not be executed.
func hookFails(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		e, failed := s.LastEvent(c.Name, "FailedPostStartHook")
		if !failed || s.Deleted() || s.WellSince(c, e) {
			continue
		}
		missing := facts.NotExecuted(e.Message)
		if !missing && c == s.Proxy {
			continue
		}
		f := result.Finding{
			Code: "container-not-created", Container: c.Name, Confidence: result.Certain,
			Sentence: fmt.Sprintf("the kubelet ends %s, since its postStart hook fails: %s", c.Name, s.HookSays(e.Message)),
			Evidence: append([]evidence.Quote{s.QuoteEvent(e, e.Last, "FailedPostStartHook: "+e.Message)}, s.QuoteEvents(c.Name, "BackOff")...),
			Disproof: fmt.Sprintf("a run of %s that ended although its hook had succeeded", c.Name),
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see why the command of the hook fails, by running it in a container of the image of %s", c.Name), Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		if missing {
			f.Remedy.Sentence = fmt.Sprintf("use an image for %s that has the hook's command, or do without it: by a startup probe if the hook waits for something, else by a Job", c.Name)
		}
		out = append(out, f)
	}
	return out
}

// healedHook says that the proxy was ended since it was not ready in time for its postStart hook, why, and that it is well
// now; false: it was not, or is not.
func (s *subject) healedHook() (string, bool) {
	if s.Proxy == nil || s.Proxy.Restarts < 1 {
		return "", false
	}
	e, failed := s.LastEvent(s.Proxy.Name, "FailedPostStartHook")
	status, last := s.Status(s.Proxy.Name), s.Proxy.Last()
	if !failed || status == nil || !status.Ready || last == nil || e.Last.Compare(last.Started) == evidence.After || facts.NotExecuted(e.Message) {
		return "", false
	}
	before := ""
	for _, u := range unready.Reasons {
		if q := s.Said.In(s.Proxy.Restarts-1, u.Said); len(q) > 0 {
			before = "; before, its log said: " + chain.Short(q[len(q)-1].Text)
			break
		}
	}
	return fmt.Sprintf("nothing is wrong now: %s was not ready in time for its postStart hook (%s), was ended, and is ready since its restart%s", s.Proxy.Name, s.HookSays(e.Message), before), true
}

// waitedInVain reports whether the hook of the proxy only waits until the proxy is ready, which it was not in time.
func (s *subject) waitedInVain() bool {
	_, is := s.WaitedInVain()
	return is && len(neverReady(s)) > 0
}
