package diagnose

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// Short names for the answers to two questions: did the proxy listen, and was a call captured?
const (
	no      = capturescope.No
	perhaps = capturescope.Perhaps
	yes     = capturescope.Yes
)

// A service is one run of the proxy, with the time at which it began to listen.
type service struct {
	evidence.Run
	ready Quote         // evidence that it began to listen; At is unknown without such evidence
	by    evidence.Time // a time at which it certainly listened; unknown without evidence
	why   Quote         // evidence that it listened at the time in by
	stops Quote         // evidence that the kubelet began to stop it; afterwards it may have exited even if its status is running
}

// proxyTexts match the lines in which proxies report their state.
var proxyTexts = []evidence.Pattern{
	{Name: "ready", Any: []string{"envoy proxy is ready", `"msg":"ready"`, "certified identity", "dapr initialized. status: running", "all dependencies initialized. starting workers"}},
	{Name: "no-control-plane", Any: []string{"config stream to xds-grpc closed", "streamaggregatedresources gRPC config stream", "deltaaggregatedresources grpc config stream", "connection error: desc", "failed to connect to upstream", "the control plane is not reachable", "is not reached: ", "failed to resolve control plane", "could not connect to the control plane"}},
	{Name: "no-certificate", Any: []string{"failed to warm certificate", "failed to sign csr", "failed to get secret", "ca client error", "failed to generate workload certificate", "token is expired", "certificate signed by unknown authority", "failed to obtain identity", "no certificate"}},
	{Name: "rejected", Any: []string{"rejected: error adding", "grpc config for", "delta config for"}, Only: func(line []byte) bool { return strings.Contains(string(line), "rejected") }},
	{Name: "capture", Any: []string{`"msg":"condition does not hold","condition":"capture"`, `"msg":"condition holds","condition":"capture"`}},
	{Name: "uncaptured", Any: []string{`"condition":"capture","reason":"`}, Only: func(line []byte) bool { return strings.Contains(string(line), "did not come to the proxy") }},
	{Name: "unreached", Any: []string{"delayed_connect_error", "delayed connect error", "remote_connection_failure", "remote connection failure"}},
	{Name: "stops", Any: []string{"received signal, draining", "agent draining proxy", "terminating proxy", "received sigterm", "caught sigterm", "caught envoy_sigterm", "epoch 0 exited", "signal received, shutting down", "shutting down gracefully"}},
	{Name: "crash", Any: []string{"caught segmentation fault", "caught aborted", "panic:", "assert failure", "std::bad_alloc"}},
}

// A proxyLog holds the lines of the proxy's logs that match proxyTexts.
type proxyLog struct {
	said map[string][]said
}

type said struct {
	run   int
	quote Quote
}

func (p *proxyLog) add(s *subject, l *evidence.Log, found []evidence.Hit) {
	if p.said == nil {
		p.said = map[string][]said{}
	}
	for _, h := range found {
		p.said[h.Pattern] = append(p.said[h.Pattern], said{l.Run, Quote{l.At(h.Line), h.Line.Time, s.show(h.Line.Text)}})
	}
}

// in returns the lines of one run of the proxy that match one pattern.
func (p *proxyLog) in(run int, kind string) (out []Quote) {
	for _, x := range p.said[kind] {
		if x.run == run {
			out = append(out, x.quote)
		}
	}
	return out
}

// readServing finds the time at which each run of the proxy was ready. It reads the proxy's log, the journal of
// Outrider's agent, and the start of the next container.
func (s *subject) readServing() {
	if s.proxy == nil {
		return
	}
	for _, r := range s.proxy.Runs {
		v := service{Run: r}
		ready := s.known.in(r.Number, "ready")
		// Both Envoy and its agent write a line. The agent's line counts, because Envoy does not listen yet when it
		// writes that it starts its workers.
		if i := slices.IndexFunc(ready, func(q Quote) bool { return q.At.Known() && q.At.Clock == evidence.NodeClock && !isWorkers(q.Text) }); i >= 0 {
			v.ready = ready[i]
		} else if i := slices.IndexFunc(ready, func(q Quote) bool { return q.At.Known() && q.At.Clock == evidence.NodeClock }); i >= 0 {
			v.ready = ready[i]
		}
		if j := s.Journal; j != nil && !v.ready.At.Known() && r.Number == s.proxy.Restarts {
			for _, e := range j.Entries {
				if e.Name == "proxy serving" && e.Begin.Known() {
					v.ready = Quote{j.Source, e.Begin, "the agent's journal: the proxy serves"}
					break
				}
			}
		}
		if r.Number == 0 {
			v.by, v.why = s.heldBy()
		}
		if r.Running {
			v.stops = s.stopping(r.Number)
			if !v.by.Known() {
				v.by, v.why = s.readyBy(r)
			}
		}
		s.serving = append(s.serving, v)
	}
}

func isWorkers(text string) bool { return strings.Contains(text, "starting workers") }

// stopping returns the evidence of the time at which the kubelet began to stop the proxy of a pod that is being
// deleted. The status is not enough: it reports the end of a container only when all containers of the pod have
// ended (found on a kubelet of 1.34).
func (s *subject) stopping(run int) Quote {
	if s.Object.DeletionTimestamp == nil {
		return Quote{}
	}
	for _, e := range s.Events {
		if e.Container == s.proxy.Name && e.Reason == "Killing" {
			return Quote{e.Source, e.Last, s.show([]byte(e.Message))}
		}
	}
	if said := s.known.in(run, "stops"); len(said) > 0 {
		return said[0]
	}
	return Quote{}
}

// stays reports whether a run of the proxy had certainly not ended at that time.
func (v service) stays(at evidence.Time) bool {
	if v.Running {
		return !v.stops.At.Known() || at.Compare(v.stops.At) == evidence.Before
	}
	return at.Compare(v.Finished) == evidence.Before
}

// readyBy returns the time at which the pod was ready. The proxy was ready then, if it has a readiness probe.
func (s *subject) readyBy(r evidence.Run) (evidence.Time, Quote) {
	spec, status := specOf(s.Object, s.proxy.Name), statusOf(s.Object, s.proxy.Name)
	ready := s.condition(corev1.PodReady, evidence.NodeClock)
	if spec == nil || spec.ReadinessProbe == nil || status == nil || !status.Ready || ready.Compare(r.Started) != evidence.After {
		return evidence.Time{}, Quote{}
	}
	return ready, s.quote(ready, "the pod is ready, and so "+s.proxy.Name+" is")
}

// heldBy returns the start of the first application, if the proxy is a native sidecar with a startup probe. The
// proxy was ready then, because the kubelet starts no application before that probe succeeds.
func (s *subject) heldBy() (evidence.Time, Quote) {
	spec := specOf(s.Object, s.proxy.Name)
	if s.proxy.Kind != startup.Sidecar || spec == nil || spec.StartupProbe == nil {
		return evidence.Time{}, Quote{}
	}
	for _, c := range s.apps {
		if r := c.Run(0); r != nil && r.Started.Known() {
			text := c.Name + " started, which the kubelet does when the startup probe of " + s.proxy.Name + " has succeeded"
			return r.Started, s.quote(r.Started, text)
		}
	}
	return evidence.Time{}, Quote{}
}

// listened returns whether the proxy accepted connections at that time, the index in s.serving of the proxy's run
// that was active or expected then, and the evidence.
func (s *subject) listened(at evidence.Time) (a capturescope.Answer, which int, because []Quote) {
	if len(s.serving) == 0 || !at.Known() {
		return perhaps, -1, nil
	}
	a, which = perhaps, -1
	for i, v := range s.serving {
		switch {
		case v.Started.Known() && at.Compare(v.Started) == evidence.Before:
			if i == 0 && v.Number == 0 || i > 0 && s.serving[i-1].Finished.Known() && at.Compare(s.serving[i-1].Finished) == evidence.After {
				return no, i, []Quote{s.quote(v.Started, s.proxy.Name+" started")}
			}
			return a, max(which, 0), because
		case v.ready.At.Known() && at.Compare(v.ready.At) == evidence.Before:
			if at.Compare(v.Started) == evidence.After || i == 0 && v.Number == 0 {
				return no, i, []Quote{v.ready}
			}
			return perhaps, i, []Quote{v.ready}
		case v.Finished.Known() && at.Compare(v.Finished) == evidence.After:
			a, which, because = no, i, []Quote{s.quote(v.Finished, s.proxy.Name+" "+runText(v.Run))}
		case v.ready.At.Known() && at.Compare(v.ready.At) == evidence.After && v.stays(at):
			return yes, i, []Quote{v.ready}
		case v.by.Known() && at.Compare(v.by) == evidence.After && v.stays(at):
			return yes, i, []Quote{v.why}
		default:
			a, which, because = perhaps, i, nil
			if v.ready.At.Known() {
				because = []Quote{v.ready}
			}
		}
	}
	return a, which, because
}
