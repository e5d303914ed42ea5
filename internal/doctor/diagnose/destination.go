package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// dependencyDown finds calls that were refused by their destination, which may be a container of the same pod. Such
// a call either is not captured, or goes to a proxy that runs and reports the refusal.
func dependencyDown(s *subject) (out []Finding) {
	for _, app := range append(slices.Clone(s.apps), s.inits...) {
		seen := map[capturescope.Destination]bool{}
		for _, y := range s.symptoms {
			if y.container != app.Name || seen[y.to] {
				continue
			}
			if f, found := s.farSide(app, y); found {
				seen[y.to] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// farSide returns the finding for one symptom, and false if the destination is not the cause.
//
// complexity: one case for each way in which a call can miss its proxy.
func (s *subject) farSide(app *evidence.Container, y symptom) (Finding, bool) {
	f := Finding{
		Code: "dependency-down", Container: app.Name, Confidence: Likely, Evidence: []Quote{y.quote},
		Sentence: fmt.Sprintf("%s could not connect to %s: it was not available", app.Name, y.to),
		Disproof: fmt.Sprintf("an answer of %s at that time", y.to),
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("check whether %s runs, and let %s retry until it does", y.to, app.Name)},
	}
	takes, why := s.capture.Takes(app.Name, y.to)
	listens, _, because := s.listened(y.at)
	switch {
	case y.kind == upstream:
		f.Confidence = Certain
		f.Sentence = fmt.Sprintf("%s called %s through its proxy, which could not connect to it", app.Name, y.to)
	case y.kind == ended:
		f.Sentence = fmt.Sprintf("%s called %s through its proxy; the connection was made, and ended before an answer", app.Name, y.to)
		f.Disproof = fmt.Sprintf("that %s ran at that time, and that its proxy accepts the certificate of this one", y.to)
		f.Remedy.Sentence += "; with TLS 1.3 a refused certificate looks the same: outrider check --proxy of the called pod says whether its proxy refused any"
	case y.kind == unavailable:
		if r := app.Run(y.run); r == nil || r.Exit == nil || *r.Exit == 0 {
			return Finding{}, false // the application did not fail: an occasional 503 is usual
		}
		f.Sentence = fmt.Sprintf("%s ended after %s answered with status 503", app.Name, y.to)
	case y.kind == reset && takes != no:
		q, said := s.unreached(app.Run(y.run))
		if !said {
			return Finding{}, false
		}
		f.Evidence = append(f.Evidence, q)
		f.Sentence = fmt.Sprintf("%s called %s through its proxy, which could not connect to it", app.Name, y.to)
	case y.kind == refused && y.to.Loopback():
		f.Code, f.Confidence = "sibling-down", Certain
		f.Sentence = fmt.Sprintf("%s called its own pod at %s, where no container listened", app.Name, y.to)
		f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("start the container that listens there before %s", app.Name)}
	case y.kind == refused && takes == no:
		f.Confidence = Certain
		f.Evidence = append(f.Evidence, s.quote(evidence.Time{}, why))
		f.Sentence = fmt.Sprintf("%s was refused by %s itself: the proxy is not involved", app.Name, y.to)
	case y.kind == refused && takes == yes && listens == yes:
		f.Evidence = append(f.Evidence, because...)
		f.Code, f.Confidence = "capture-not-in-place", Possible
		f.Sentence = fmt.Sprintf("%s was refused although its proxy listened: its call did not go there", app.Name)
		f.Disproof = "that the capture's rules are in the pod's network namespace"
		f.Remedy = finding.Remedy{Sentence: "check whether the rules of the capture are there"}
	case y.kind == refused && takes == perhaps && listens == yes, y.kind == refused && takes == perhaps && listens == perhaps:
		f.Evidence = append(append(f.Evidence, because...), s.quote(evidence.Time{}, why))
		f.Confidence = Possible
		if listens == yes {
			f.Confidence = Likely
		}
	case y.kind == timedOut && listens != no && y.to.Known(), y.kind == unreachable:
		f.Sentence = fmt.Sprintf("%s got no answer from %s", app.Name, y.to)
		f.Confidence = Possible
		if listens == yes || takes == no {
			f.Confidence = Likely
		}
	default:
		return Finding{}, false
	}
	return f, true
}

// unreached returns a line of the proxy's log that names a destination which the proxy could not reach, and that
// was written during the run r of an application.
func (s *subject) unreached(r *evidence.Run) (Quote, bool) {
	for _, x := range s.known.said["unreached"] {
		at := x.quote.At
		if r != nil && at.Known() && at.Compare(r.Started) != evidence.Before && (r.Running || at.Compare(r.Finished) != evidence.After) {
			return x.quote, true
		}
	}
	return Quote{}, false
}

// nameNotResolved finds names that did not resolve to an address.
func nameNotResolved(s *subject) (out []Finding) {
	for _, app := range append(slices.Clone(s.apps), s.inits...) {
		for _, y := range s.symptoms {
			if y.container != app.Name || y.kind != unresolved {
				continue
			}
			name := cmp.Or(y.to.Host, "a name")
			f := Finding{
				Code: "name-not-resolved", Container: app.Name, Confidence: Likely, Evidence: []Quote{y.quote},
				Sentence: fmt.Sprintf("%s could not resolve the name %s", app.Name, name),
				Disproof: fmt.Sprintf("an answer of the cluster's DNS for %s at that time", name),
				Remedy:   finding.Remedy{Sentence: "check whether the name is correct, with its namespace, and whether the cluster's DNS answers", Command: s.kubectl("get service")},
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// shutdownRace finds calls that failed because the proxy had exited before the application.
func shutdownRace(s *subject) (out []Finding) {
	if s.proxy == nil || len(s.serving) == 0 || s.hookFailed() {
		return nil
	}
	last := s.serving[len(s.serving)-1]
	stops := s.known.in(last.Number, "stops")
	left := s.quote(last.Finished, s.proxy.Name+" ended")
	if last.stops.At.Known() && s.proxy.Kind == startup.Plain { // the status does not report the proxy's end yet
		left = last.stops
	}
	if !left.At.Known() {
		return nil
	}
	for _, app := range s.apps {
		for _, y := range s.symptoms {
			if y.container != app.Name || y.kind != refused && y.kind != reset {
				continue
			}
			takes, why := s.capture.Takes(app.Name, y.to)
			crashed := !last.Running && (last.Exit == nil || *last.Exit != 0 && last.Signal != 15 && *last.Exit != 143)
			after := y.at.Compare(left.At) == evidence.After || y.at.Known() && y.last.Compare(left.At) == evidence.After
			// A captured call is refused only while no proxy listens. In a pod that is being deleted, a proxy that
			// has exited is not started again.
			within := s.Object.DeletionTimestamp != nil && takes == yes && y.at.Known() && y.at.Clock == left.At.Clock && y.at.Compare(left.At) != evidence.Before
			if takes == no || crashed || !after && !within {
				continue
			}
			f := Finding{
				Code: "shutdown-race", Container: app.Name, Confidence: Certain,
				Sentence: fmt.Sprintf("shutdown race: %s ended while %s still made calls", s.proxy.Name, app.Name),
				Evidence: append([]Quote{left, y.quote}, stops...),
				Disproof: fmt.Sprintf("an end of %s before that of %s", app.Name, s.proxy.Name),
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar, which the kubelet stops after %s", s.proxy.Name, app.Name)},
				Patch:    s.nativePatch(app.Name),
			}
			switch {
			case takes == perhaps:
				f.Confidence, f.Against = Likely, []Quote{s.quote(evidence.Time{}, why)}
			case !after:
				f.Confidence = Likely // the clocks are not exact enough to order the two times
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// probeFails finds readiness probes that fail while the container runs.
func probeFails(s *subject) (out []Finding) {
	for _, app := range s.apps {
		status := statusOf(s.Object, app.Name)
		if status == nil || status.Ready || status.State.Running == nil || s.held(app.Name) {
			continue
		}
		var q []Quote
		for _, e := range s.Events {
			if e.Container == app.Name && e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, "Readiness") {
				q = append(q, Quote{e.Source, e.Last, s.show([]byte(e.Message))})
			}
		}
		if len(q) == 0 {
			continue
		}
		f := Finding{
			Code: "probe-fails", Container: app.Name, Confidence: Likely, Evidence: q,
			Sentence: fmt.Sprintf("%s runs, and its readiness probe fails", app.Name),
			Disproof: "a successful answer to the same request made in the pod",
			Remedy:   finding.Remedy{Sentence: "make the probe's request in the pod", Command: s.kubectl("describe pod %s", s.Object.Name)},
		}
		if spec := specOf(s.Object, app.Name); s.proxy != nil && s.capture.None == "" && spec.ReadinessProbe != nil && spec.ReadinessProbe.Exec == nil && s.cut(q) {
			f.Code = "probe-blocked-by-proxy"
			f.Sentence = fmt.Sprintf("the readiness probe of %s goes through %s, which blocks it: the kubelet has no certificate", app.Name, s.proxy.Name)
			f.Remedy.Sentence = "have injection rewrite the probe (sidecar.istio.io/rewriteAppHTTPProbers: \"true\"), or leave its port out of the capture"
		}
		out = append(out, f)
	}
	return out
}

// held reports whether the container's command is still waiting at its gate, because the proxy is not ready.
func (s *subject) held(app string) bool {
	e, waits := s.waits(app)
	if !waits || e.By != startup.Gate {
		return false
	}
	proxy := statusOf(s.Object, s.proxy.Name)
	return proxy != nil && !proxy.Ready
}

// cut reports whether probes reached a proxy that requires mutual TLS. Such a proxy accepts the probe's connection,
// and then closes it.
func (s *subject) cut(probes []Quote) bool {
	return slices.ContainsFunc(probes, func(q Quote) bool {
		l := strings.ToLower(q.Text)
		return strings.Contains(l, "reset by peer") || strings.Contains(l, ": eof")
	})
}

// ownCrash finds applications that exited by themselves, without a failed call that explains the exit.
func ownCrash(s *subject) (out []Finding) {
	for _, app := range append(slices.Clone(s.apps), s.inits...) {
		for i := len(app.Runs) - 1; i >= 0; i-- {
			r := app.Runs[i]
			again := app.Waiting != nil && app.Waiting.Reason == "CrashLoopBackOff" // exit code 0 counts too: the container should run forever
			if r.Exit == nil || *r.Exit == 0 && !again || r.Reason == "OOMKilled" || s.Object.DeletionTimestamp != nil || s.explained(app, r) {
				continue
			}
			f := Finding{
				Code: "app-crash", Container: app.Name, Confidence: Likely,
				Sentence: fmt.Sprintf("%s ended by itself: %s", app.Name, exitText(r)),
				Evidence: []Quote{s.quote(r.Finished, fmt.Sprintf("%s, run %d: %s %s", app.Name, r.Number, exitText(r), s.show([]byte(r.Message))))},
				Disproof: "a failed call, or a signal from outside, just before its end",
				Remedy:   finding.Remedy{Sentence: "see the end of its log", Command: s.kubectl("logs %s -c %s --previous", s.Object.Name, app.Name)},
			}
			if app.Log(r.Number) == nil {
				f.Confidence = Possible
				f.Against = []Quote{s.quote(evidence.Time{}, fmt.Sprintf("the log of run %d is missing: it may have a failed call", r.Number))}
			}
			if q, said := s.unreached(&r); said && s.proxy != nil {
				f.Code, f.Evidence = "dependency-down", append(f.Evidence, q)
				f.Sentence = fmt.Sprintf("%s ended (%s) after its proxy did not reach what it called", app.Name, exitText(r))
				f.Disproof, f.Remedy = "another reason in its log", finding.Remedy{Sentence: fmt.Sprintf("check whether the destination of %s runs, and let it retry until it does", app.Name)}
			}
			out = append(out, f)
			break
		}
	}
	return out
}

// explained reports whether a run may have ended because of a failed call or because a probe failed.
func (s *subject) explained(app *evidence.Container, r evidence.Run) bool {
	killed := slices.ContainsFunc(s.Events, func(e evidence.Event) bool {
		return e.Container == app.Name && e.Reason == "Killing" && strings.Contains(e.Message, "probe")
	})
	return killed && r.Signal != 0 || slices.ContainsFunc(s.symptoms, func(y symptom) bool { return y.container == app.Name && y.run == r.Number })
}
