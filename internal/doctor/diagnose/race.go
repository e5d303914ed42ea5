package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// settled is the time after which a proxy certainly listens. It is used if no evidence shows when the proxy began to
// listen.
const settled = time.Minute

// usual is the time after which most proxies listen. It is used if no evidence shows when the proxy began to listen.
const usual = 15 * time.Second

// startupRace finds calls that were refused because the proxy did not listen yet.
func startupRace(s *subject) (out []Finding) {
	for _, app := range s.apps {
		f, y, found := s.race(app)
		if !found {
			continue
		}
		e, waits := s.waits(app.Name)
		why, held := s.holdWithoutEffect()
		switch {
		case waits && e.By == startup.Hold:
			s.failedOpen(&f, app, y)
		case held:
			f.Code = "hold-without-effect"
			f.Sentence = fmt.Sprintf("the hold of %s is set and has no effect: %s made a call before its proxy was ready, %s", s.proxy.Name, app.Name, s.consequence(app, y))
			f.Evidence = append(f.Evidence, why)
			s.wait(&f, app, y, stronger)
			f.Remedy.Sentence = "recreate the pod, so that it is injected with the hold that is set; or " + f.Remedy.Sentence
		default:
			s.wait(&f, app, y, waiting)
		}
		out = append(out, f)
	}
	return out
}

// failedOpen changes the finding of a race for an application that a postStart hook should have held: the kubelet
// starts the next container even if that hook fails.
func (s *subject) failedOpen(f *Finding, app *evidence.Container, y symptom) {
	f.Code = "hold-fails-open"
	f.Sentence = fmt.Sprintf("the hold of %s failed open: %s started before its proxy was ready, %s", s.proxy.Name, app.Name, s.consequence(app, y))
	f.Disproof = fmt.Sprintf("an end of the postStart hook of %s before %s started", s.proxy.Name, app.Name)
	for _, v := range s.Events {
		if v.Container == s.proxy.Name && v.Reason == "FailedPostStartHook" {
			f.Evidence, f.Confidence = append(f.Evidence, Quote{v.Source, v.First, v.Message}), Certain
		}
	}
	s.wait(f, app, y, stronger)
}

// holdWithoutEffect returns a quote about the annotation that requests Istio's hold, if the pod has no hold that is
// effective: the proxy has no postStart hook, or it is not the first container.
func (s *subject) holdWithoutEffect() (Quote, bool) {
	var config struct {
		Hold bool `json:"holdApplicationUntilProxyStarts"`
	}
	text := s.Object.Annotations[contract.ProxyConfig]
	if manifest.DecodeAnnotation(text, &config) != nil || !config.Hold || s.proxy.Kind != startup.Plain {
		return Quote{}, false
	}
	spec := specOf(s.Object, s.proxy.Name)
	why := fmt.Sprintf("%s has no postStart hook", s.proxy.Name)
	if spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
		if s.Object.Spec.Containers[0].Name == s.proxy.Name {
			return Quote{}, false
		}
		why = fmt.Sprintf("%s has the hook and is not the first container: those before it do not wait", s.proxy.Name)
	}
	return s.quote(evidence.Time{}, fmt.Sprintf("the annotation %s requests the hold, but %s", contract.ProxyConfig, why)), true
}

// race returns the most confident finding of a start-up race for one container, and the refused call on which it
// is based.
func (s *subject) race(app *evidence.Container) (best Finding, of symptom, found bool) {
	for _, y := range s.symptoms {
		if y.container != app.Name || y.kind != refused {
			continue
		}
		f, fits := s.judge(app, y)
		if fits && (!found || confidence(f) > confidence(best)) {
			best, of, found = f, y, true
		}
	}
	return best, of, found
}

func confidence(f Finding) int {
	for i, c := range confidences {
		if c == f.Confidence {
			return i
		}
	}
	return -1
}

// judge decides whether a call was refused because the proxy did not listen.
func (s *subject) judge(app *evidence.Container, y symptom) (Finding, bool) {
	takes, why := s.capture.Takes(app.Name, y.to)
	if takes == no || s.capture.Parks {
		return Finding{}, false
	}
	if takes == perhaps && !y.to.Known() && s.capture.TakesAll() && s.alone(app) {
		takes = yes // in this pod only a captured call can have been refused
	}
	assumed := cmp.Or(s.placed(app, &y), s.proxyZone)
	listens, which, because := s.listened(y.at)
	if listens == yes || which < 0 || s.diedBefore(which, y.at) && !s.hookFailed() || !s.serving[which].stays(y.at) && s.serving[which].Running {
		return Finding{}, false
	}
	f := Finding{
		Code: "startup-race", Container: app.Name,
		Sentence: fmt.Sprintf("startup race: %s made a call before its proxy was ready, %s", app.Name, s.consequence(app, y)),
		Evidence: append([]Quote{y.quote}, because...),
		Disproof: fmt.Sprintf("a line of %s that says it was ready before %s, or a setting that leaves %s out of the capture", s.proxy.Name, Instant(y.at), y.to),
	}
	run := s.serving[which]
	f.Evidence = append(f.Evidence, s.quote(run.Started, fmt.Sprintf("%s started", s.proxy.Name)))
	if q, ok := s.wellSince(app, y); ok {
		f.Evidence = append(f.Evidence, q)
	}
	if assumed != nil {
		f.Evidence = append(f.Evidence, *assumed)
	}
	switch {
	case listens == no && takes == yes && assumed == nil && y.to.Known():
		f.Confidence = Certain
	case listens == no && (takes == yes || s.capture.Vague != "" || !s.capture.LeavesOut()):
		f.Confidence = Likely
	case listens == no:
		f.Confidence = Possible // perhaps this call was not captured
	case run.ready.At.Known() || takes == perhaps:
		// The clocks are not exact enough to order the two times, or perhaps the call was not captured.
		f.Confidence = Possible
	case s.late(y.at, run):
		f.Confidence = Possible
	default:
		// No evidence shows when the proxy was ready, but a captured call is refused only while no proxy listens.
		f.Confidence = Likely
		f.Evidence = append(f.Evidence, s.quote(evidence.Time{}, fmt.Sprintf("the capture sends %s to %s, where the kernel refuses it only while no proxy listens", y.to, s.proxy.Name)))
	}
	if takes == perhaps {
		f.Against = append(f.Against, s.quote(evidence.Time{}, why))
	}
	if q, recurs := s.recurs(app, y, run); recurs {
		f.Against, f.Confidence = append(f.Against, q), Possible
	}
	return f, true
}

// alone reports whether the pod has no other application that this one could call.
func (s *subject) alone(app *evidence.Container) bool {
	return !slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool {
		return c != app && c != s.proxy && c.Kind != startup.Init
	})
}

// late reports whether a call was made so long after the proxy's start that most proxies listen by then.
func (s *subject) late(at evidence.Time, proxy service) bool {
	least, _, ok := at.Since(proxy.Started)
	return ok && least > usual
}

// hookFailed reports whether the kubelet killed the proxy because the proxy's postStart hook failed. The kubelet then
// starts the applications that the hook held.
func (s *subject) hookFailed() bool {
	return s.Object.DeletionTimestamp == nil && len(s.events(s.proxy.Name, "FailedPostStartHook")) > 0
}

// diedBefore reports whether one of the proxy's runs s.serving[0] to s.serving[which] had ended before the call.
func (s *subject) diedBefore(which int, at evidence.Time) bool {
	for i := 0; i <= which; i++ {
		if end := s.serving[i].Finished; end.Known() && at.Compare(end) != evidence.Before {
			return true
		}
	}
	return false
}

// consequence describes what the application did after the refused call.
func (s *subject) consequence(app *evidence.Container, y symptom) string {
	r := app.Run(y.run)
	switch {
	case r == nil:
		return "and was refused"
	case r.Exit != nil && *r.Exit != 0:
		return fmt.Sprintf("was refused, and ended (%s)", exitText(*r))
	case r.Running && s.triedAgain(y):
		return "was refused, tried again, and was no longer refused once the proxy was ready"
	case r.Running:
		return "was refused, and goes on, perhaps without the data that it requested"
	}
	return "and was refused"
}

// triedAgain reports whether the application repeated a refused call, each time before the proxy listened.
func (s *subject) triedAgain(y symptom) bool {
	listens, _, _ := s.listened(y.last)
	return y.last.Compare(y.at) == evidence.After && listens == no
}

// wellSince returns the start of a later run of the application without a refused call.
func (s *subject) wellSince(app *evidence.Container, y symptom) (Quote, bool) {
	last := app.Last()
	if last == nil || !last.Running || last.Number <= y.run || app.Log(last.Number) == nil || len(s.of(app.Name, last.Number, refused)) > 0 {
		return Quote{}, false
	}
	return s.quote(last.Started, fmt.Sprintf("%s runs since then (run %d), and its log has no refused call", app.Name, last.Number)), true
}

// recurs returns a refusal of the same call at a time when the proxy listened, or long after the proxy's start. The
// start is then not the cause.
func (s *subject) recurs(app *evidence.Container, y symptom, proxy service) (Quote, bool) {
	for _, other := range s.symptoms {
		if other.kind != refused || other.container != app.Name || other.to != y.to {
			continue
		}
		least, _, ok := other.last.Since(proxy.Started)
		if listens, _, _ := s.listened(other.last); listens == yes || listens == perhaps && ok && least > settled {
			q := other.quote
			q.At = other.last
			return q, true
		}
	}
	return Quote{}, false
}

// proxyDied finds exits of the proxy while applications ran.
func proxyDied(s *subject) (out []Finding) {
	for i, v := range s.serving {
		if !v.Finished.Known() || s.Object.DeletionTimestamp != nil && i == len(s.serving)-1 {
			continue
		}
		app := s.ranAt(v.Finished)
		if app == nil || s.replaced(v.Run) {
			continue
		}
		f := Finding{
			Code: "proxy-died", Container: s.proxy.Name, Confidence: Certain,
			Sentence: fmt.Sprintf("%s ended while %s ran: %s", s.proxy.Name, app.Name, exitText(v.Run)),
			Evidence: []Quote{s.quote(v.Finished, fmt.Sprintf("%s, run %d: %s", s.proxy.Name, v.Number, exitText(v.Run)))},
			Disproof: fmt.Sprintf("a run of %s that had ended before %s", app.Name, Instant(v.Finished)),
			Remedy:   finding.Remedy{Sentence: "see its log for the reason", Command: s.kubectl("logs %s -c %s --previous", s.Object.Name, s.proxy.Name)},
		}
		if v.Reason == "OOMKilled" {
			f.Code = "proxy-out-of-memory"
			f.Sentence = fmt.Sprintf("%s ran out of memory while %s ran", s.proxy.Name, app.Name)
			f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("raise the memory limit of %s (%s), or limit the configuration that it gets", s.proxy.Name, s.memoryLimit(s.proxy.Name))}
		}
		f.Evidence = append(f.Evidence, s.known.in(v.Number, "crash")...)
		for _, y := range s.symptoms {
			if y.container != s.proxy.Name && y.at.Compare(v.Finished) == evidence.After && (i+1 == len(s.serving) || !s.serving[i+1].ready.At.Known() || y.at.Compare(s.serving[i+1].ready.At) == evidence.Before) {
				f.Evidence = append(f.Evidence, y.quote)
			}
		}
		out = append(out, f)
	}
	return out
}

// replaced reports whether the kubelet ended a run of the proxy because the image in the pod's spec was changed, as
// "outrider upgrade pods" does, and the proxy drained until it could exit with status 0. The kubelet counts equal
// events of one container as one, with the times of the first and the last.
func (s *subject) replaced(r evidence.Run) bool {
	return r.Exit != nil && *r.Exit == 0 && slices.ContainsFunc(s.Events, func(e evidence.Event) bool {
		return e.Container == s.proxy.Name && e.Reason == "Killing" && strings.Contains(e.Message, "definition changed") &&
			e.First.Compare(r.Finished) != evidence.After && e.Last.Compare(r.Started) != evidence.Before
	})
}

// ranAt returns an application that certainly ran at that time, or nil.
func (s *subject) ranAt(at evidence.Time) *evidence.Container {
	for _, app := range s.apps {
		for _, r := range app.Runs {
			if r.Started.Compare(at) == evidence.Before && (r.Running || r.Finished.Compare(at) == evidence.After) {
				return app
			}
		}
	}
	return nil
}

func exitText(r evidence.Run) string {
	switch {
	case r.Reason == "OOMKilled":
		return "out of memory"
	case r.Exit == nil:
		return cmp.Or(r.Reason, "ended")
	case r.Signal > 0:
		return fmt.Sprintf("exit code %d, signal %d", *r.Exit, r.Signal)
	}
	return fmt.Sprintf("exit code %d", *r.Exit)
}
