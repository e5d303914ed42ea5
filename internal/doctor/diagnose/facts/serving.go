package facts

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// Times after which a proxy listens, if no evidence shows when it began: most proxies do after Usual, and each
// certainly does after Settled.
const (
	Usual   = 15 * time.Second
	Settled = time.Minute
)

// A Topic is the subject of a line of a proxy's log.
type Topic string

// The topics.
const (
	SaysReady      Topic = "ready"
	Begins         Topic = "begins" // an agent starts its Envoy, or that begins
	NoControlPlane Topic = "no-control-plane"
	NoCertificate  Topic = "no-certificate"
	Untrusted      Topic = "untrusted"  // a certificate between the proxy and its control plane
	Denied         Topic = "denied"     // the proxy, by its control plane
	Rejected       Topic = "rejected"   // configuration
	OfCapture      Topic = "capture"    // whether it is in place
	Uncaptured     Topic = "uncaptured" // connections did not come to the proxy
	Unreached      Topic = "unreached"  // the destination of a call
	Answers        Topic = "answers"    // it begins to answer DNS queries
	Stops          Topic = "stops"
	Crash          Topic = "crash"
	ProbeFailed    Topic = "probe-failed"    // the agent asked an application's probe in the kubelet's place
	Waits          Topic = "waits"           // for something outside it, or that came
	InboundRefused Topic = "inbound-refused" // a port of the pod refused the proxy
)

// topics match the lines in which proxies report their state.
var topics = []evidence.Pattern{
	{Name: string(SaysReady), Any: []string{"envoy proxy is ready", `"msg":"ready"`, "certified identity", "dapr initialized. status: running", "all dependencies initialized. starting workers"}},
	{Name: string(Begins), Any: beginnings, Only: func(line []byte) bool { return begins.Match(line) }},
	{Name: string(NoControlPlane), Only: func(line []byte) bool { return answerOf(line) == NoControlPlane }, Any: []string{"config stream to xds-grpc closed", "streamaggregatedresources gRPC config stream", "deltaaggregatedresources grpc config stream", "connection error: desc", "failed to connect to upstream", "the control plane is not reachable", "is not reached: ", "failed to resolve control plane", "could not connect to the control plane"}},
	{Name: string(NoControlPlane), Any: []string{"controller{addr=", "linkerd_identity", "linkerd-identity"}, Only: func(line []byte) bool { return answerOf(line) == NoControlPlane && failedToConnect.Match(line) }},
	{Name: string(Untrusted), Any: ofControlPlane, Only: func(line []byte) bool { return answerOf(line) == Untrusted }},
	{Name: string(Denied), Any: ofControlPlane, Only: func(line []byte) bool { return answerOf(line) == Denied }},
	{Name: string(NoCertificate), Any: []string{"failed to warm certificate", "failed to sign csr", "failed to get secret", "ca client error", "failed to generate workload certificate", "token is expired", "certificate signed by unknown authority", "failed to obtain identity", "no certificate"}},
	{Name: string(Rejected), Any: []string{"rejected: error adding", "grpc config for", "delta config for"}, Only: func(line []byte) bool { return strings.Contains(string(line), "rejected") }},
	{Name: string(OfCapture), Any: []string{`"msg":"condition does not hold","condition":"capture"`, `"msg":"condition holds","condition":"capture"`}},
	{Name: string(Uncaptured), Any: []string{`"condition":"capture","reason":"`}, Only: func(line []byte) bool { return strings.Contains(string(line), "did not come to the proxy") }},
	{Name: string(Unreached), Any: []string{"delayed_connect_error", "delayed connect error", "remote_connection_failure", "remote connection failure"}},
	{Name: string(Unreached), Any: []string{"linkerd_reconnect: failed to connect"}, Only: func(line []byte) bool { return ofLinkerd.Match(line) }},
	{Name: string(Unreached), Any: []string{" uf,", " uf ", ",uf "}, Only: func(line []byte) bool { return connectFailed.Match(line) }},
	{Name: string(Unreached), Any: []string{" uh,", " uh ", ",uh "}, Only: func(line []byte) bool { a, is := AttemptOf(string(line)); return is && a.None }},
	{Name: string(Answers), Any: []string{"starting dns server", "dns server at "}},
	{Name: string(Stops), Any: []string{"received signal, draining", "agent draining proxy", "terminating proxy", "received sigterm", "caught sigterm", "caught envoy_sigterm", "epoch 0 exited", "has successfully terminated", "aborted normally", "signal received, shutting down", "shutting down gracefully", "starting shutdown", "quitquitquit", "terminate request", "shutdown request", "stopping dataplane"}},
	{Name: string(Crash), Any: []string{"caught segmentation fault", "caught aborted", "panic:", "assert failure", "std::bad_alloc"}},
	{Name: string(ProbeFailed), Any: []string{"request to probe app failed"}},
	{Name: string(NoControlPlane), Any: []string{"config not received from", "failed to resolve control-plane component"}},
	{Name: string(NoControlPlane), Any: []string{"fail-fast", "failfast"}, Only: func(line []byte) bool { return ofLinkerdControl.Match(line) }},
	{Name: string(NoCertificate), Any: []string{"failed to retrieve the initial identity"}},
	{Name: string(Rejected), Any: []string{"config received from"}, Only: func(line []byte) bool { return strings.Contains(string(line), "rejected") }},
	{Name: string(Waits), Any: []string{"waiting on", "waiting for", "waiting until", "will block until", "not ready: ", "discovered on port"}, Only: func(line []byte) bool { return !idle.Match(line) }},
	{Name: string(InboundRefused), Any: []string{"connection refused", "delayed_connect_error", "delayed connect error", "connect error: 111", " uf"}, Only: func(line []byte) bool { _, is := RefusedInbound(string(line)); return is }},
}

// beginnings have the words of agents and of Envoy before Envoy listens: of Istio's and Kuma's agent when they start it, and
// of Envoy when it begins and before it asks for its listeners. Sources: istio pkg/envoy/proxy.go, kuma
// app/kuma-dp/pkg/dataplane/envoy, envoy source/server/server.cc.
var beginnings = []string{"envoy command: [", "starting envoy", "initializing epoch 0", "starting main dispatch loop"}

// begins matches such a line as a message, and not as a part of another sentence.
var begins = regexp.MustCompile(`(?i)(?:^|\t|\] |: |\) |msg="|"(?:msg|message)": ?")(?:envoy command: \[|starting envoy(?:$|[\t".]| with| \{)|initializing epoch 0|starting main dispatch loop)`)

// ofControlPlane are the texts of lines about the connection to a control plane.
var ofControlPlane = []string{"config stream to xds-grpc closed", "aggregatedresources grpc config stream", "failed to connect to upstream", "controller{addr=", "linkerd_identity", "linkerd-identity", "linkerd2_proxy_identity::certify"}

var (
	failedToConnect = regexp.MustCompile(`(?i)failed to connect`)
	// certRefused matches the words of TLS libraries about a certificate, or a handshake, that one side did not accept.
	certRefused = regexp.MustCompile(`(?i)invalid peer certificate|\bx509:|certificate[_ ]verif\w+[_ ]failed|unknown ?issuer|bad certificate|unknown (?:ca|certificate authority)|certificate (?:has expired|is not valid)|invalid certificate: \w`)
	// streamClosed matches the status with which a stream of Envoy's configuration ended, as gRPC numbers them.
	streamClosed = regexp.MustCompile(`(?i)config stream(?: to \S+)? closed(?: since [^:]*)?: (\d{1,2}),`)
	askRefused   = regexp.MustCompile(`(?i)unauthenticated|permission_?denied|authentication failure|code = (?:Unauthenticated|PermissionDenied)`)
)

// answerOf returns what a line about a control plane that did not serve a proxy says: it was not reached, it refused the
// proxy, or one of them does not accept the certificate of the other; empty: neither, as of a stream that ended as usual.
// Source of the numbers: grpc/grpc, doc/statuscodes.md (0 OK, 7 PERMISSION_DENIED, 16 UNAUTHENTICATED).
func answerOf(line []byte) Topic {
	status := ""
	if m := streamClosed.FindSubmatch(line); m != nil {
		status = string(m[1])
	}
	switch {
	case certRefused.Match(line):
		return Untrusted
	case status == "0":
		return ""
	case status == "7" || status == "16" || askRefused.Match(line):
		return Denied
	}
	return NoControlPlane
}

var (
	// ofLinkerdControl matches lines of Linkerd's proxy about a part of its control plane.
	ofLinkerdControl = regexp.MustCompile(`controller\b.*linkerd|linkerd-(?:identity|destination|policy|dst)`)
	// idle matches lines of a program that waits for its work or for its own end, or for its Envoy, which says why itself.
	idle = regexp.MustCompile(`(?i)waiting (?:on|for|until) (?:the )?(?:new |incoming |all |active |more |open |)(?:connections?|requests?|signals?|shutdown|termination|events?|drain|envoy|proxy|child|exit)`)
	came = regexp.MustCompile(`(?i)discovered on port`)
)

// Came reports whether a line of [Waits] says that what a proxy waited for came.
func Came(line string) bool { return came.MatchString(line) }

// Said contains the lines of the proxy's logs about each topic.
type Said map[Topic][]statement

type statement struct {
	run   int
	quote evidence.Quote
}

// In returns the lines of one run of the proxy about a topic.
func (s Said) In(run int, about Topic) (out []evidence.Quote) {
	for _, x := range s[about] {
		if x.run == run {
			out = append(out, x.quote)
		}
	}
	return out
}

// All returns the lines about all topics, in the order of the topics.
func (s Said) All() (out []evidence.Quote) {
	for _, t := range topics {
		for _, x := range s[Topic(t.Name)] {
			out = append(out, x.quote)
		}
	}
	return out
}

// Unreached returns the last line of the proxy's log, in a span of time, about a destination that the proxy did not
// reach, and that fits.
func (s Said) Unreached(from, to evidence.Time, fits func(Attempt) bool) (last evidence.Quote, of Attempt, found bool) {
	for _, x := range s[Unreached] {
		at := x.quote.At
		a, _ := AttemptOf(x.quote.Text)
		if at.Known() && from.Known() && at.Compare(from) != evidence.Before && at.Compare(to) != evidence.After && fits(a) {
			last, of, found = x.quote, a, true
		}
	}
	return last, of, found
}

// A Service is one run of the proxy, with the time at which it began to listen.
type Service struct {
	evidence.Run
	Ready evidence.Quote // evidence that it began to listen; At is unknown without such evidence
	Began evidence.Quote // the last line of its start before which it certainly did not listen; At is unknown without one
	Opens evidence.Quote // the first line of its log, if its status was left out: it ran then, and was not ready yet; At is unknown without one
	first bool           // no run was before it
	Stops evidence.Quote // evidence that the kubelet began to stop it; afterwards it may have exited even if its status is running
	by    evidence.Time  // a time at which it certainly listened; unknown without evidence
	why   evidence.Quote // evidence that it listened at the time in by
}

// Stays reports whether a run of the proxy had certainly not ended at that time.
func (v Service) Stays(at evidence.Time) bool {
	if v.Running {
		return !v.Stops.At.Known() || at.Compare(v.Stops.At) == evidence.Before
	}
	return at.Compare(v.Finished) == evidence.Before
}

// WorkersAlone reports whether the only evidence is Envoy's line about starting its workers, before which it may have
// rejected the listener that its readiness probe needs.
func (v Service) WorkersAlone() bool { return IsWorkers(v.Ready) }

// IsWorkers reports whether Envoy says in a line that it starts its workers.
func IsWorkers(q evidence.Quote) bool { return strings.Contains(q.Text, "starting workers") }

// readProxy scans the proxy's logs, and finds the time at which each of its runs was ready. If the time zone of a log
// is not known, the likely one is assumed. It fails only if ctx ends.
func (p *Pod) readProxy(ctx context.Context) error {
	if p.Proxy == nil {
		return nil
	}
	p.Said = Said{}
	for _, l := range p.Proxy.Logs {
		l, assumed := l.InLikelyZone()
		p.ProxyZone = cmp.Or(assumed, p.ProxyZone)
		found, last, err := l.Scan(ctx, append(slices.Clone(topics), evidence.Ending))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.Unread = append(p.Unread, evidence.Missing{Kind: l.Source.Kind, What: l.Source.String(), Why: err.Error()})
		}
		if told, is := l.Told(p.Proxy.Name, found, last, p.ShowSecrets); is {
			p.ProxyReasons = append(p.ProxyReasons, told)
		}
		for _, h := range found {
			if h.Pattern == evidence.Ending.Name {
				continue
			}
			p.Said[Topic(h.Pattern)] = append(p.Said[Topic(h.Pattern)], statement{l.Run, l.Quote(h.Line, p.ShowSecrets)})
		}
	}
	for _, r := range p.Proxy.Runs {
		p.Serving = append(p.Serving, p.service(r))
	}
	if w := p.Proxy.Waiting; w != nil && len(p.Serving) == 0 && p.Proxy.Restarts == 0 {
		q := p.Quote(evidence.Time{}, "%s has never run, it waits (%s)", p.Proxy.Name, w.Reason)
		p.Unborn = &q
	}
	if len(p.Serving) == 0 && p.Proxy.Restarts < 0 && ((p.Row != nil || p.Omitted.Units) && len(p.Proxy.Logs) > 0 || slices.ContainsFunc(p.Apps, func(c *evidence.Container) bool { return c.Last() != nil })) {
		v := p.service(evidence.Run{Number: -1}) // it has run, but its status was left out
		v.Opens, v.first = p.opens(ctx, v.Ready.At)
		if q, is := p.left(); is {
			v.Finished, v.Exit = q.At, new(0)
		}
		p.Serving = append(p.Serving, v)
	}
	return nil
}

// left returns the line with which the proxy's log ends its only start that is known: that it has ended, after it was told to stop.
func (p *Pod) left() (last evidence.Quote, is bool) {
	said := p.Said.In(-1, Stops)
	if len(said) < 2 || !gone.MatchString(said[len(said)-1].Text) {
		return last, false
	}
	last = said[len(said)-1]
	ready := p.Said.In(-1, SaysReady)
	return last, last.At.Known() && (len(ready) == 0 || ready[len(ready)-1].At.Compare(last.At) == evidence.Before)
}

// gone matches the last words of Istio's agent. Sources: istio pkg/envoy/agent.go, pilot/cmd/pilot-agent/app.
var gone = regexp.MustCompile(`(?i)agent has successfully terminated|epoch 0 exited|aborted normally`)

// opens returns the first line of the proxy's log, unless it was ready long after it, so that they are of two starts; and
// whether no run was before: the pod has no restarts, or its log is a part of a stream that begins with an
// application's lines.
func (p *Pod) opens(ctx context.Context, ready evidence.Time) (first evidence.Quote, alone bool) {
	if len(p.Proxy.Logs) != 1 {
		return first, false
	}
	log := p.Proxy.Logs[0]
	line, found := log.Opening(ctx)
	if _, most, known := ready.Since(line.Time); !found || known && (most < 0 || most > Settled) {
		return first, false
	}
	at := log.At(line)
	around := func(l *evidence.Log) bool {
		return l.Source.File == at.File && len(l.Lines) > 0 && l.Lines[0] < at.Line && at.Line < l.Lines[len(l.Lines)-1]
	}
	alone = p.Row != nil && p.Row.Restarts == 0 || slices.ContainsFunc(p.Apps, func(c *evidence.Container) bool { return slices.ContainsFunc(c.Logs, around) })
	return log.Quote(line, p.ShowSecrets), alone
}

// service returns a run of the proxy with the evidence of the time at which it served: the proxy's log, the journal of
// Outrider's agent, and the start of the next container.
func (p *Pod) service(r evidence.Run) Service {
	v := Service{Run: r}
	onNode := func(q evidence.Quote) bool { return q.At.Known() && q.At.Clock == evidence.NodeClock }
	ready := p.Said.In(r.Number, SaysReady)
	// Both Envoy and its agent write a line. The agent's line counts, because Envoy does not listen yet when it
	// writes that it starts its workers.
	if i := slices.IndexFunc(ready, func(q evidence.Quote) bool { return onNode(q) && !IsWorkers(q) }); i >= 0 {
		v.Ready = ready[i]
	} else if i := slices.IndexFunc(ready, onNode); i >= 0 {
		v.Ready = ready[i]
	}
	v.Began = p.began(r, v.Ready.At)
	if j := p.Journal; j != nil && !v.Ready.At.Known() && r.Number == p.Proxy.Restarts {
		if i := slices.IndexFunc(j.Entries, func(e evidence.JournalEntry) bool { return e.Name == "proxy serving" && e.Begin.Known() }); i >= 0 {
			v.Ready = evidence.Quote{Source: j.Source, At: j.Entries[i].Begin, Text: "the agent's journal: the proxy serves"}
		}
	}
	if r.Number == 0 {
		v.by, v.why = p.heldBy()
	}
	if r.Running {
		v.Stops = p.stopping(r.Number)
		if !v.by.Known() {
			v.by, v.why = p.readyBy(r)
		}
	}
	return v
}

// began returns the last line of the start of a run of the proxy before which it did not listen: of each kind of line the
// first one, as an agent may start its Envoy again.
func (p *Pod) began(r evidence.Run, ready evidence.Time) (last evidence.Quote) {
	said := p.Said.In(r.Number, Begins)
	for _, text := range beginnings {
		i := slices.IndexFunc(said, func(q evidence.Quote) bool { return strings.Contains(strings.ToLower(q.Text), text) })
		if i < 0 || !said[i].At.Known() || said[i].At.Clock != evidence.NodeClock {
			continue
		}
		_, most, known := said[i].At.Since(r.Started)
		if said[i].At.Compare(ready) != evidence.After && (!known || most < Young) && said[i].At.At.After(last.At.At) {
			last = said[i]
		}
	}
	return last
}

// stopping returns the evidence of the time at which the kubelet began to stop the proxy of a pod that is being
// deleted. The status is not enough: it reports the end of a container only when all containers of the pod have
// ended (found on a kubelet of 1.34).
func (p *Pod) stopping(run int) evidence.Quote {
	if !p.Deleted() {
		return evidence.Quote{}
	}
	for _, e := range p.Events {
		if e.Container == p.Proxy.Name && e.Reason == "Killing" {
			return p.QuoteEvent(e, e.Last, e.Message)
		}
	}
	if said := p.Said.In(run, Stops); len(said) > 0 {
		return said[0]
	}
	return evidence.Quote{}
}

// readyBy returns the time at which the pod was ready. The proxy was ready then, if it has a readiness probe.
func (p *Pod) readyBy(r evidence.Run) (evidence.Time, evidence.Quote) {
	spec, status := p.Spec(p.Proxy.Name), p.Status(p.Proxy.Name)
	ready := p.Condition(corev1.PodReady, evidence.NodeClock)
	if spec == nil || spec.ReadinessProbe == nil || status == nil || !status.Ready || ready.Compare(r.Started) != evidence.After {
		return evidence.Time{}, evidence.Quote{}
	}
	return ready, p.Quote(ready, "the pod is ready, and so %s is", p.Proxy.Name)
}

// heldBy returns the start of the first application, if the proxy is a native sidecar with a startup probe. The
// proxy was ready then, because the kubelet starts no application before that probe succeeds.
func (p *Pod) heldBy() (evidence.Time, evidence.Quote) {
	spec := p.Spec(p.Proxy.Name)
	if p.Proxy.Kind != startup.Sidecar || spec == nil || spec.StartupProbe == nil {
		return evidence.Time{}, evidence.Quote{}
	}
	for _, c := range p.Apps {
		r := c.Run(0)
		if r == nil && p.Proxy.Restarts == 0 && len(c.Runs) > 0 {
			r = &c.Runs[0] // any run of it is after that of the proxy
		}
		if r != nil && r.Started.Known() {
			return r.Started, p.Quote(r.Started, "%s started, which the kubelet does when the startup probe of %s has succeeded", c.Name, p.Proxy.Name)
		}
	}
	return evidence.Time{}, evidence.Quote{}
}

// A Listening says whether the proxy accepted connections at a time.
type Listening struct {
	Answer  doctor.Answer
	Run     int // index in Serving of the run that was active or expected then; -1: none
	Because []evidence.Quote
}

// Listened returns whether the proxy accepted connections at that time.
func (p *Pod) Listened(at evidence.Time) Listening {
	l := Listening{doctor.Perhaps, -1, nil}
	if p.Unborn != nil {
		return Listening{doctor.No, -1, []evidence.Quote{*p.Unborn}}
	}
	if !at.Known() {
		if len(p.Serving) == 1 && p.Serving[0].Number == 0 && p.Serving[0].Stays(at) {
			l.Run = 0 // whenever it was, no other run is meant
		}
		return l
	}
	for i, v := range p.Serving {
		first := i == 0 && (v.Number == 0 || v.first)
		switch {
		case v.Started.Known() && at.Compare(v.Started) == evidence.Before:
			if first || i > 0 && p.Serving[i-1].Finished.Known() && at.Compare(p.Serving[i-1].Finished) == evidence.After {
				return Listening{doctor.No, i, []evidence.Quote{p.Quote(v.Started, "%s started", p.Proxy.Name)}}
			}
			l.Run = max(l.Run, 0)
			return l
		case first && at.Compare(v.Opens.At) == evidence.Before:
			return Listening{doctor.No, i, []evidence.Quote{v.Opens}}
		case v.Ready.At.Known() && at.Compare(v.Ready.At) == evidence.Before, at.Compare(v.Began.At) == evidence.Before:
			a, because := doctor.Perhaps, v.Ready
			if at.Compare(v.Started) == evidence.After || at.Compare(v.Opens.At) == evidence.After || first {
				a = doctor.No
			}
			if !v.Ready.At.Known() {
				because = v.Began
			}
			return Listening{a, i, []evidence.Quote{because}}
		case v.Finished.Known() && at.Compare(v.Finished) == evidence.After:
			l = Listening{doctor.No, i, []evidence.Quote{p.Quote(v.Finished, "%s %s", p.Proxy.Name, RunText(v.Run))}}
		case v.Ready.At.Known() && at.Compare(v.Ready.At) == evidence.After && v.Stays(at):
			return Listening{doctor.Yes, i, []evidence.Quote{v.Ready}}
		case v.by.Known() && at.Compare(v.by) == evidence.After && v.Stays(at):
			return Listening{doctor.Yes, i, []evidence.Quote{v.why}}
		default:
			l = Listening{doctor.Perhaps, i, nil}
			if v.Ready.At.Known() {
				l.Because = []evidence.Quote{v.Ready}
			}
		}
	}
	return l
}

// ReadyIsKnown reports whether there is evidence of when a run of the proxy was ready.
func (p *Pod) ReadyIsKnown() bool {
	return slices.ContainsFunc(p.Serving, func(v Service) bool { return v.Ready.At.Known() })
}

// DiedBetween reports whether one of the proxy's runs Serving[0] to Serving[which] had ended after one time, and perhaps
// before another one.
func (p *Pod) DiedBetween(which int, from, to evidence.Time) bool {
	return slices.ContainsFunc(p.Serving[:which+1], func(v Service) bool {
		return v.Finished.Known() && to.Compare(v.Finished) != evidence.Before && (!from.Known() || from.Compare(v.Finished) == evidence.Before)
	})
}

// Active returns the run of the proxy that was active or expected at a time; the zero value: none was.
func (p *Pod) Active(l Listening) (v Service) {
	if l.Run >= 0 {
		v = p.Serving[l.Run]
	}
	return v
}

// HookFailed reports whether the kubelet killed the proxy because the proxy's postStart hook failed. The kubelet then
// starts the applications that the hook held.
func (p *Pod) HookFailed() bool {
	waits := p.Proxy.Waiting != nil && p.Proxy.Waiting.Reason == HookError
	return !p.Deleted() && (waits || len(p.QuoteEvents(p.Proxy.Name, "FailedPostStartHook")) > 0)
}

// Replaced reports whether the kubelet ended a run of the proxy because the image in the pod's spec was changed, as
// "outrider upgrade pods" does, and the proxy drained until it could exit with status 0. The kubelet counts equal
// events of one container as one, with the times of the first and the last.
func (p *Pod) Replaced(r evidence.Run) bool {
	return r.Exit != nil && *r.Exit == 0 && slices.ContainsFunc(p.Events, func(e evidence.Event) bool {
		return e.Container == p.Proxy.Name && e.Reason == "Killing" && strings.Contains(e.Message, "definition changed") &&
			e.First.Compare(r.Finished) != evidence.After && e.Last.Compare(r.Started) != evidence.Before
	})
}

// RunText describes a run of a container.
func RunText(r evidence.Run) string {
	switch {
	case r.Running:
		return "runs"
	case r.Exit == nil:
		return "ended"
	}
	return ExitText(r)
}

// ExitText describes the end of a run.
func ExitText(r evidence.Run) string {
	switch {
	case r.Reason == "OOMKilled":
		return "out of memory"
	case r.Exit == nil:
		if r.Reason != "" {
			return r.Reason
		}
		return "ended"
	case r.Signal > 0:
		return fmt.Sprintf("exit code %d, signal %d", *r.Exit, r.Signal)
	}
	return fmt.Sprintf("exit code %d", *r.Exit)
}

// Late reports whether a time is so long after the start of a run of the proxy that most proxies listen by then.
func (v Service) Late(at evidence.Time) bool {
	least, _, ok := at.Since(v.Started)
	return ok && least > Usual
}
