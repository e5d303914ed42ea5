package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/diagnose/unnamed"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
	"outrider.dev/startup"
)

// killedByProbe finds containers that the kubelet killed because a liveness or startup probe failed.
func killedByProbe(s *subject) (out []result.Finding) {
	for _, c := range s.Containers {
		for _, e := range s.Events {
			if e.Container != c.Name || e.Reason != "Killing" || !strings.Contains(e.Message, "probe") {
				continue
			}
			kind := "liveness"
			if strings.Contains(e.Message, "startup") {
				kind = "startup"
			}
			f := result.Finding{
				Code: "killed-by-probe", Container: c.Name, Confidence: result.Certain,
				Sentence: fmt.Sprintf("%s was killed because its %s probe failed", c.Name, kind),
				Evidence: append([]evidence.Quote{s.QuoteEvent(e, e.First, e.Message)}, s.QuoteEvents(c.Name, "Unhealthy")...),
				Disproof: fmt.Sprintf("an end of %s before the event", c.Name),
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("check the target of the %s probe of %s, and give it more time", kind, c.Name)},
			}
			s.answered(&f, c, kind)
			if edge, waits := s.AwaitsProxy(c.Name); waits && s.killedWaiting(c) {
				f.Code = "killed-while-waiting"
				f.Sentence = fmt.Sprintf("%s was killed by its %s probe while it waited for %s", c.Name, kind, s.Proxy.Name)
				f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "its order: %s", edge.String()))
				f.Remedy.Sentence = fmt.Sprintf("give %s a startup probe that lasts longer than %s needs", c.Name, s.Proxy.Name)
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// killedWaiting reports whether a run of the container ended before the proxy was ready.
func (s *subject) killedWaiting(c *evidence.Container) bool {
	for _, r := range c.Runs {
		if r.Finished.Known() && s.Listened(r.Finished).Answer == no {
			return true
		}
	}
	return false
}

// outOfMemory finds applications that the kernel killed.
func outOfMemory(s *subject) (out []result.Finding) {
	for _, c := range s.Work() {
		for _, r := range c.Runs {
			if r.Reason != "OOMKilled" {
				continue
			}
			f := result.Finding{
				Code: "out-of-memory", Container: c.Name, Confidence: result.Certain,
				Sentence: fmt.Sprintf("%s ran out of memory", c.Name),
				Evidence: []evidence.Quote{s.Quote(r.Finished, "%s, run %d: OOMKilled, exit code %d", c.Name, r.Number, *r.Exit)},
				Disproof: "a message of the kernel that another process of the pod was the one killed",
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("raise the memory limit of %s (%s), or find out what uses it", c.Name, s.MemoryLimit(c.Name))},
			}
			s.LimitChanged(&f)
			out = append(out, f)
			break
		}
	}
	return out
}

// probeFails finds readiness probes that fail while the container runs.
func probeFails(s *subject) (out []result.Finding) {
	for _, app := range s.Apps {
		status := s.Status(app.Name)
		if status == nil || status.Ready || status.State.Running == nil || s.held(app.Name) {
			continue
		}
		var q []evidence.Quote
		for _, e := range s.Events {
			if e.Container == app.Name && e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, "Readiness") {
				q = append(q, s.QuoteEvent(e, e.Last, e.Message))
			}
		}
		if s.yetToListen(app, q) {
			continue
		}
		if len(q) == 0 {
			f := result.Finding{Code: "probe-fails", Container: app.Name, Confidence: result.Likely, Sentence: app.Name + " runs and is not ready", Evidence: []evidence.Quote{s.Quote(evidence.Time{}, "%s is not ready", app.Name)}}
			if s.AsksElsewhere(&f, app.Name, "startup", "readiness") {
				out = append(out, f)
			}
			continue
		}
		f := result.Finding{
			Code: "probe-fails", Container: app.Name, Confidence: result.Likely, Evidence: q,
			Sentence: fmt.Sprintf("%s runs, and its readiness probe fails", app.Name),
			Disproof: "a successful answer to the same request made in the pod",
			Remedy:   finding.Remedy{Sentence: "make the probe's request in the pod", Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		s.answered(&f, app, "readiness")
		s.unheard(&f, app.Name)
		if spec := s.Spec(app.Name); s.Proxy != nil && s.Capture.None == "" && spec.ReadinessProbe != nil && spec.ReadinessProbe.Exec == nil && facts.Cut(q) {
			f.Code = "probe-blocked-by-proxy"
			f.Sentence = fmt.Sprintf("the readiness probe of %s goes through %s, which blocks it: the kubelet has no certificate", app.Name, s.Proxy.Name)
			f.Remedy.Sentence = "have injection rewrite the probe (sidecar.istio.io/rewriteAppHTTPProbers: \"true\"), or leave its port out of the capture"
		}
		out = append(out, f)
	}
	return out
}

// held reports whether the container's command is still waiting at its gate, because the proxy is not ready.
func (s *subject) held(app string) bool {
	e, waits := s.AwaitsProxy(app)
	if !waits || e.By != startup.Gate {
		return false
	}
	proxy := s.Status(s.Proxy.Name)
	return proxy != nil && !proxy.Ready
}

// ownCrash finds applications that exited by themselves, without a failed call that explains the exit.
func ownCrash(s *subject) (out []result.Finding) {
	if len(podEnded(s)) > 0 {
		return nil // all containers were ended
	}
	for _, app := range s.Work() {
		for i := len(app.Runs) - 1; i >= 0; i-- {
			r := app.Runs[i]
			again := app.Waiting != nil && app.Waiting.Reason == "CrashLoopBackOff" // exit code 0 counts too: the container should run forever
			if r.Exit == nil || *r.Exit == 0 && !again || r.Reason == "OOMKilled" || skipped(r) || s.EndedByStop(app.Name, r) != no || s.endedAtDeadline(&r) || s.Explained(app.Name, r) {
				continue
			}
			if m, _ := states.Find(states.Terminated, r.Reason, r.Message); m.Code != "" || s.EndedByHook(app.Name, r) {
				continue // it never ran, its node lost it, or the kubelet ended it
			}
			f := s.crash(app, r)
			s.calledBefore(&f, app.Name, r)
			if q, a, tried := s.unreachedBefore(app.Name, r); tried {
				f.Code, f.Evidence = "dependency-down", append(f.Evidence, q)
				f.Sentence = fmt.Sprintf("%s ended (%s) after its proxy did not reach what it called", app.Name, facts.ExitText(r))
				f.Disproof, f.Remedy = "another reason in its log", finding.Remedy{Sentence: fmt.Sprintf("check whether the destination of %s runs, and let it retry until it does", app.Name)}
				attempted(&f, app.Name, r, a)
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// calledBefore quotes, against a finding that a run ended by itself, the last call that failed in its last minute, and that
// the run got over by its log. A lost packet ends no program.
func (s *subject) calledBefore(f *result.Finding, app string, r evidence.Run) {
	for _, y := range slices.Backward(s.Calls.Of(app, r.Number)) {
		if least, _, ok := r.Finished.Since(y.Last); ok && least <= time.Minute && y.To.Network != doctor.UDP {
			f.Disproof = "a signal from outside just before its end, or that it waited for this call"
			if !slices.Contains(f.Evidence, y.Quote) {
				f.Against = append(f.Against, y.Quote)
			}
			return
		}
	}
}

// unreachedBefore returns the line of the proxy's log about a destination that it did not reach in the last minute of a
// run, unless the log of the run has another reason for its end.
func (s *subject) unreachedBefore(app string, r evidence.Run) (evidence.Quote, facts.Attempt, bool) {
	if told, says := s.Reason(app, r.Number); s.Proxy == nil || says && !s.isOver(told, r) && !chain.OfConnections.MatchString(told.Text) {
		return evidence.Quote{}, facts.Attempt{}, false
	}
	from := r.Finished
	from.At = from.At.Add(-time.Minute)
	return s.Said.Unreached(from, r.Finished, func(facts.Attempt) bool { return true })
}

// attempted says what the proxy's access log has of the destination that the proxy did not reach.
func attempted(f *result.Finding, app string, r evidence.Run, a facts.Attempt) {
	if a.To == "" {
		return
	}
	f.Sentence = fmt.Sprintf("%s ended (%s) after its proxy could not connect to %s", app, facts.ExitText(r), a.To)
	f.Remedy.Sentence = fmt.Sprintf("check whether %s runs, and let %s retry until it does", a.To, app)
	if a.None {
		f.Sentence = fmt.Sprintf("%s ended (%s) after its proxy knew no healthy endpoint of %s", app, facts.ExitText(r), a.To)
		f.Remedy.Sentence = fmt.Sprintf("see whether %s has ready endpoints, and let %s retry until it does", a.To, app)
	}
	if a.Took >= 2*time.Second {
		f.Sentence = fmt.Sprintf("%s ended (%s) after its proxy got no answer from %s within %s", app, facts.ExitText(r), a.To, facts.Duration(a.Took))
		f.Remedy.Sentence = fmt.Sprintf("see whether %s runs, and answers from the node and from another pod: what drops the packets (a firewall, a NetworkPolicy, routing) is not in the evidence", a.To)
	}
}

// crash returns the finding about a run that ended by itself: with the line of its log that tells why, or with what its
// status means.
func (s *subject) crash(c *evidence.Container, r evidence.Run) result.Finding {
	f := result.Finding{
		Code: "app-crash", Container: c.Name, Confidence: result.Likely,
		Sentence: fmt.Sprintf("%s ended by itself: %s", c.Name, facts.ExitText(r)),
		Evidence: []evidence.Quote{s.Quote(r.Finished, "%s, run %d: %s", c.Name, r.Number, joined(facts.ExitText(r), s.Show([]byte(r.Message))))},
		Disproof: "a failed call, or a signal from outside, just before its end",
		Remedy:   s.SeeLog(c.Name, r.Number),
	}
	exit := exitOf(r)
	if exit.Sentence != "" {
		f.Sentence = fmt.Sprintf("%s %s (%s)", c.Name, exit.Sentence, facts.ExitText(r))
		f.Remedy.Sentence = cmp.Or(exit.Remedy, f.Remedy.Sentence)
	}
	told, byMessage, says := s.ToldOf(c.Name, r)
	byMessage = byMessage && !calls.Fails(told.Text)
	switch itself := r.Exit == nil || *r.Exit != 0 && !exit.Outside; {
	case says && itself && !s.isOver(told, r):
		s.tell(&f, c, r, told)
	case !itself:
		s.endedByProbe(&f, c.Name, r)
		fallthrough
	default:
		last := s.LastLines(c.Name, r.Number, chain.QuotedLines)
		f.Evidence = append(f.Evidence, last...)
		if itself && !says && exit.Sentence == "" {
			s.lastWord(&f, c.Name, r, last)
		}
	}
	f.Evidence = append(f.Evidence, s.QuoteEvents(c.Name, "BackOff")...)
	if c.Log(r.Number) == nil && (!byMessage || exit.Outside) {
		f.Confidence = result.Possible
		if exit.Sentence == "" && !says {
			f.Sentence = fmt.Sprintf("%s ended (%s)", c.Name, facts.ExitText(r)) + unnamed.NoLog
			s.SamePort(&f, c.Name)
		}
		f.Against = []evidence.Quote{s.Quote(evidence.Time{}, "the log of run %d is missing: it may have a failed call", r.Number)}
	}
	return f
}

// lastWord adds to the finding about a run that ended by itself, and of which no line tells why, what its log says last.
func (s *subject) lastWord(f *result.Finding, container string, r evidence.Run, last []evidence.Quote) {
	var lines []string
	for _, q := range last {
		lines = append(lines, q.Text)
	}
	if text, wrong := why.LastWord(lines); text != "" {
		f.Sentence = fmt.Sprintf("%s ended by itself (%s); the last that its log says: %s", container, facts.ExitText(r), text)
		if wrong {
			f.Remedy.Sentence = cmp.Or(why.Remedy(text), f.Remedy.Sentence)
		}
	}
}

// exitOf returns what the status of a run means by itself; without a sentence: only the program knows.
func exitOf(r evidence.Run) states.Exit {
	if r.Exit == nil || r.Reason == "OOMKilled" {
		return states.Exit{}
	}
	exit, _ := states.OfExit(*r.Exit)
	return exit
}

// tell changes the finding about a run that ended by itself to what its log tells.
func (s *subject) tell(f *result.Finding, c *evidence.Container, r evidence.Run, told evidence.Told) {
	if stop, stopped := s.StoppedItself(c.Name, r.Number, told.Quotes[0].Source); stopped {
		f.Sentence = fmt.Sprintf("%s was told to stop, and then ended with a failure of its own (%s)", c.Name, facts.ExitText(r))
		f.Evidence, f.Disproof = append(f.Evidence, append([]evidence.Quote{stop}, told.Quotes...)...), "a failure before that line"
		f.Remedy = finding.Remedy{Sentence: "see what ended it: a deletion, a probe, its node", Command: s.Kubectl("describe pod %s", s.Object.Name)}
		return
	}
	f.Sentence = fmt.Sprintf("%s ended by itself: %s (%s)", c.Name, told.Text, facts.ExitText(r))
	f.Evidence = append(f.Evidence, told.Quotes...)
	f.Remedy.Sentence = why.Remedy(told.Text)
	f.Evidence = append(f.Evidence, s.architecture(told)...)
	s.PortTaken(f, c, told)
	s.OtherSocket(f, c.Name, told)
}

// endedByProbe changes the finding about a run that was ended from outside, if one of its probes cannot succeed. No
// event is left of it.
func (s *subject) endedByProbe(f *result.Finding, container string, r evidence.Run) {
	before := f.Sentence
	if s.AsksElsewhere(f, container, "startup", "liveness") {
		f.Code = "killed-by-probe"
		f.Sentence = fmt.Sprintf("%s was ended, most likely by the kubelet%s (%s)", container, strings.TrimPrefix(f.Sentence, before), facts.ExitText(r))
	}
}

// isOver reports whether a run went on for long after what its log tells.
func (s *subject) isOver(told evidence.Told, r evidence.Run) bool {
	least, _, ok := r.Finished.Since(told.Quotes[0].At)
	return ok && least > time.Minute && !told.Timeless
}

// architecture quotes the CPU of the nodes that the pod may run on, if a program was for another one.
func (s *subject) architecture(told evidence.Told) (out []evidence.Quote) {
	for _, label := range []string{"kubernetes.io/arch", "beta.kubernetes.io/arch"} {
		if v := s.Object.Spec.NodeSelector[label]; v != "" && strings.Contains(told.Text, "exec format error") {
			out = append(out, s.Quote(evidence.Time{}, "the pod runs on nodes with %s: %s", label, v))
		}
	}
	return out
}
