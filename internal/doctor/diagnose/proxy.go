package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/diagnose/unready"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
	"outrider.dev/startup"
)

// proxyDied finds exits of the proxy while applications ran.
func proxyDied(s *subject) (out []result.Finding) {
	for i, v := range s.Serving {
		if !v.Finished.Known() || v.Reason != "OOMKilled" && s.EndedByStop(s.Proxy.Name, v.Run) != no {
			continue
		}
		app, crash := s.RanAt(v.Finished), s.Said.In(v.Number, facts.Crash)
		if app == nil && len(crash) > 0 && len(s.Apps) > 0 {
			app = s.Apps[0]
		}
		while, disproof := "", "an end of the proxy by a signal from outside"
		switch oom := v.Reason == "OOMKilled"; {
		case s.Replaced(v.Run), s.toldToQuit(v.Run), s.EndedByHook(s.Proxy.Name, v.Run) && !v.Ready.At.Known(), app == nil && !oom && !s.missed(v):
			continue
		case app != nil:
			while, disproof = fmt.Sprintf(" while %s ran", app.Name), fmt.Sprintf("a run of %s that had ended before %s", app.Name, result.Instant(v.Finished))
		}
		f := result.Finding{
			Code: "proxy-died", Container: s.Proxy.Name, Confidence: result.Certain,
			Sentence: fmt.Sprintf("%s ended%s: %s", s.Proxy.Name, while, facts.ExitText(v.Run)),
			Evidence: []evidence.Quote{s.Quote(v.Finished, "%s, run %d: %s", s.Proxy.Name, v.Number, facts.ExitText(v.Run))},
			Disproof: disproof,
			Remedy:   s.SeeLog(s.Proxy.Name, v.Number),
		}
		if v.Reason == "OOMKilled" {
			f.Code = "proxy-out-of-memory"
			f.Sentence = fmt.Sprintf("%s ran out of memory%s", s.Proxy.Name, while)
			f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("raise the memory limit of %s (%s), or limit the configuration that it gets", s.Proxy.Name, s.MemoryLimit(s.Proxy.Name))}
		}
		f.Remedy.Sentence = cmp.Or(f.Remedy.Sentence, exitOf(v.Run).Remedy)
		f.Evidence = append(f.Evidence, crash...)
		s.proxySays(&f, v.Run)
		if i == len(s.Serving)-1 {
			s.Gone(&f)
		}
		for _, y := range s.Calls {
			again := i+1 < len(s.Serving) && s.Serving[i+1].Ready.At.Known()
			known := y.At.Known() && y.At.Compare(v.Finished) != evidence.Before && (!again || y.At.Compare(s.Serving[i+1].Ready.At) == evidence.Before)
			if known || again && !y.Undated && chain.InAnyZone(y.Quote.At, v.Finished, s.Serving[i+1].Ready.At) {
				f.Evidence = append(f.Evidence, y.Quote)
			}
		}
		out = append(out, f)
	}
	return out
}

// missed reports whether a run of the proxy failed by itself, and an application began to run afterwards, and so without
// it, or ended in the same second.
func (s *subject) missed(v facts.Service) bool {
	return v.Exit != nil && *v.Exit != 0 && !exitOf(v.Run).Outside && slices.ContainsFunc(s.Apps, func(c *evidence.Container) bool {
		return slices.ContainsFunc(c.Runs, func(r evidence.Run) bool {
			return r.Started.Compare(v.Finished) == evidence.After || r.Finished.Known() && r.Finished.Compare(v.Finished) == evidence.CannotTell
		})
	})
}

// proxySays adds to the finding about the end of the proxy what its log says of it, unless it was ended from outside.
func (s *subject) proxySays(f *result.Finding, r evidence.Run) {
	told, says := s.Reason(s.Proxy.Name, r.Number)
	if !says || f.Code != "proxy-died" || r.Exit == nil || *r.Exit == 0 || s.isOver(told, r) {
		return
	}
	if exit, known := states.OfExit(*r.Exit); known && exit.Outside {
		return
	}
	f.Sentence += ": " + told.Text
	f.Remedy.Sentence = cmp.Or(why.Remedy(told.Text), f.Remedy.Sentence)
	for _, q := range told.Quotes {
		if !slices.Contains(f.Evidence, q) {
			f.Evidence = append(f.Evidence, q)
		}
	}
}

// captureLost finds proxies to which connections no longer came, by the agent's proofs, and whether they come again.
func captureLost(s *subject) (out []result.Finding) {
	if s.Proxy == nil || len(s.Serving) == 0 {
		return nil
	}
	f := result.Finding{
		Code: "capture-not-in-place", Container: s.Proxy.Name, Confidence: result.Certain,
		Disproof: "a call of that direction and family of IP in the proxy's access log at that time",
		Remedy:   finding.Remedy{Sentence: unready.CaptureRemedy},
	}
	lost, back := evidence.Quote{}, evidence.Quote{}
	for _, q := range s.Said.In(s.Serving[len(s.Serving)-1].Number, "capture") {
		switch {
		case strings.Contains(q.Text, "does not hold"):
			lost, back = q, evidence.Quote{}
		case lost.Text != "":
			back = q
		}
	}
	switch {
	case lost.Text == "":
		return nil
	case back.Text == "":
		f.Sentence = fmt.Sprintf("connections go past %s: the rules of the capture are missing, or others act in their place", s.Proxy.Name)
		f.Evidence = []evidence.Quote{lost}
	default:
		f.Sentence = fmt.Sprintf("connections went past %s for a while: the rules of the capture did not act, and do again", s.Proxy.Name)
		f.Evidence = []evidence.Quote{lost, back}
		f.Remedy.Sentence = "find the program that removed the rules or wrote others"
	}
	return []result.Finding{f}
}

// neverReady finds proxies that run without becoming ready, and why.
func neverReady(s *subject) (out []result.Finding) {
	if s.Row != nil {
		return unready.OfRow(s.Pod)
	}
	if s.Proxy == nil || s.Proxy.Waiting != nil && len(s.Proxy.Runs) == 0 {
		return nil
	}
	status := s.Status(s.Proxy.Name)
	ran := slices.ContainsFunc(s.Apps, func(c *evidence.Container) bool { return len(c.Runs) > 0 })
	if status == nil || status.Ready || status.State.Running == nil && !s.HookFailed() || len(s.Serving) == 0 {
		return nil
	}
	now := s.Serving[len(s.Serving)-1]
	if s.Deleted() && ran && !s.LongUnready(now) {
		return nil
	}
	// Envoy's log line about starting its workers does not prove that it is ready: it may have rejected the listener
	// that its readiness probe needs.
	workersAlone := now.WorkersAlone() && len(s.Said.In(now.Number, facts.Rejected)) > 0
	if now.Ready.At.Known() && !workersAlone {
		return nil
	}
	f := result.Finding{
		Code: "proxy-not-ready", Container: s.Proxy.Name, Confidence: result.Likely,
		Sentence: fmt.Sprintf("%s is not ready, and its log does not say why", s.Proxy.Name),
		Evidence: append([]evidence.Quote{s.Quote(now.Started, "%s %s, and is not ready", s.Proxy.Name, facts.RunText(now.Run))}, s.QuoteEvents(s.Proxy.Name, "Unhealthy")...),
		Disproof: fmt.Sprintf("a readiness probe of %s that succeeds", s.Proxy.Name),
		Remedy:   finding.Remedy{Sentence: "see which part its readiness probe waits for", Command: s.Kubectl("logs %s -c %s", s.Object.Name, s.Proxy.Name)},
	}
	if s.Proxy.Log(now.Number) == nil {
		f.Sentence, f.Remedy.Sentence = fmt.Sprintf("%s is not ready, and why is not known without its log", s.Proxy.Name), "see its log for the reason"
	}
	if now.Started.Known() && s.Until().Sub(now.Started.At) < facts.Settled {
		f.Confidence = result.Possible // it may still become ready
	}
	about := now.Number
	if before := about - 1; len(s.Said.All()) > 0 && !s.saysWhyUnready(about) && s.failedToGetReady(before) {
		about, f.Confidence = before, result.Likely // its last run has said more
	}
	for _, u := range unready.Reasons {
		if q := s.Said.In(about, u.Said); len(q) > 0 {
			u = u.By(q[len(q)-1].Text)
			f.Code, f.Confidence = u.Code, result.Certain
			f.Sentence = fmt.Sprintf("%s is not ready: %s", s.Proxy.Name, u.What)
			f.Evidence = append(f.Evidence, q[len(q)-1])
			f.Remedy.Sentence = u.Remedy
			break
		}
	}
	if told, says := s.Reason(s.Proxy.Name, now.Number); says && f.Code == "proxy-not-ready" {
		f.Sentence = fmt.Sprintf("%s is not ready; its log says: %s", s.Proxy.Name, told.Text)
		f.Evidence, f.Remedy.Sentence = append(f.Evidence, told.Quotes...), why.Remedy(told.Text)
	}
	if a, waits := s.Awaits(about); waits && f.Code == "proxy-not-ready" {
		a.Explain(&f)
	}
	if q, inVain := s.WaitedInVain(); inVain {
		f.Sentence = strings.Replace(f.Sentence, " is not ready", " was not ready in time for its postStart hook, and so is ended", 1)
		f.Evidence = append(f.Evidence, q)
		s.Gone(&f)
	} else if f.Code == "proxy-not-ready" && (status.State.Running == nil || f.Confidence == result.Possible && s.Proxy.Restarts == 0) {
		return nil // the rules about its end say more; and one that began to run just now is starting
	}
	return []result.Finding{f}
}

// saysWhyUnready reports whether the log of a run of the proxy has a reason why it is not ready.
func (s *subject) saysWhyUnready(run int) bool {
	for _, u := range unready.Reasons {
		if len(s.Said.In(run, u.Said)) > 0 {
			return true
		}
	}
	return false
}

// failedToGetReady reports whether a run of the proxy ended without having been ready.
func (s *subject) failedToGetReady(run int) bool {
	return slices.ContainsFunc(s.Serving, func(v facts.Service) bool {
		return v.Number == run && v.Finished.Known() && !v.Ready.At.Known()
	})
}

// consulInit is the init container of Consul's mesh.
const consulInit = "consul-connect-inject-init"

// captureFails finds init containers of a mesh that failed. The pod's other containers wait for them.
func captureFails(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		r := c.Last()
		if r != nil && r.Number > 0 && (r.Running || s.EndedByStop(c.Name, *r) != no) {
			r = c.Run(r.Number - 1) // it tried again
		}
		if c.Kind != startup.Init || !knownproxy.OfMesh(c.Name) && c.Name != consulInit || r == nil || r.Exit == nil || *r.Exit == 0 || s.StoppedIn(c.Name, *r) {
			continue
		}
		role := "which sets up the capture"
		checks := capturescope.OnlyChecks(s.Spec(c.Name))
		switch {
		case c.Name == consulInit:
			role = "which registers the pod with Consul"
		case checks:
			role = "which only checks the capture that the mesh's CNI plugin should have set up"
		}
		f := s.crash(c, *r)
		f.Code, f.Confidence = "capture-not-in-place", result.Certain
		if s.EndedByStop(c.Name, *r) != no {
			f.Confidence = result.Possible
		}
		f.Disproof = fmt.Sprintf("a later run of %s that completed", c.Name)
		f.Remedy = s.SeeLog(c.Name, r.Number)
		m := states.CaptureFailure{Why: facts.ExitText(*r), Do: f.Remedy.Sentence}
		var lines []string
		last := s.LastLines(c.Name, r.Number, 16)
		for _, q := range last {
			lines = append(lines, q.Text)
		}
		told, _, says := s.ToldOf(c.Name, *r)
		if says && !checks {
			lines = append(lines, told.Text)
			last = append(last, told.Quotes[0])
			m.Why, m.Do = fmt.Sprintf("%s (%s)", told.Text, m.Why), why.Remedy(told.Text)
		}
		if said, i, is := states.OfCapture(lines, checks); is {
			if m = said; !slices.Contains(f.Evidence, last[i]) {
				f.Evidence = append(f.Evidence, last[i])
			}
		}
		if checks && *r.Exit == states.NotValid {
			m = states.RulesMissing
		}
		f.Sentence, f.Remedy.Sentence = fmt.Sprintf("%s, %s, failed: %s", c.Name, role, m.Why), m.Do
		s.Anew(&f, c.Name, *r)
		out = append(out, f)
	}
	return out
}
