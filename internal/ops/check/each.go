package check

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// A Selection chooses pods with a proxy. The zero value selects all.
type Selection struct {
	Namespace string
	Labels    string // a label selector, in kubectl's syntax
	Pod       string // name, or name.namespace
}

// Limits for the requests to agents, which are made through forwarded ports: number of agents, concurrent requests,
// and time.
const (
	maxAsked   = 100
	asksAtOnce = 8
	askLimit   = 10 * time.Second
)

// startLimit is the time that a proxy may take to become ready. A proxy that takes longer counts as failed.
const startLimit = time.Minute

// certificateWarning is the remaining lifetime of a certificate below which there is a warning. An agent renews its
// certificate after half of the lifetime (by default 12 h of 24 h), and retries until it succeeds. So if only an
// hour is left, the renewal has been failing for a long time.
const certificateWarning = time.Hour

// A proxyState combines the facts about a pod's proxy from the kubelet, the replicas and the agent.
type proxyState struct {
	pod       corev1.Pod
	container *corev1.ContainerStatus // nil: the kubelet has not reported it yet
	connected *debugapi.Proxy         // newest connection; nil if no replica reported one
	unasked   string                  // a replica that did not respond, with the reason; empty: all responded
	agent     agentAnswer
}

// An agentAnswer is the state that an agent reports.
type agentAnswer struct {
	err         error // reason why there is no state: no request was made, or it failed
	ready       bool
	reasons     []string
	certificate time.Duration // time until it expires; 0 if there is none
	has         bool          // the agent requests a certificate
	tls         tlsUse
}

// topics lists the checks that are made for each proxy.
var topics = []struct {
	probe
	of func(proxyState) answer
}{
	{probe{id: "proxy-connection", title: "the proxy is connected to a replica"}, proxyState.connection},
	{probe{id: "proxy-config", title: "the proxy accepted the newest configuration"}, proxyState.config},
	{probe{id: "proxy-ready", title: "the agent reports the proxy ready"}, proxyState.readiness},
	{probe{id: "proxy-certificate", title: "the proxy's certificate is valid"}, proxyState.certificate},
	{probe{id: "proxy-tls", title: "the proxy's clients use TLS 1.3"}, proxyState.tls},
	{probe{id: "proxy-version", title: "the proxy has the control plane's version"}, proxyState.version},
}

// RunProxies makes the checks of each selected proxy, and returns them sorted by pod. It fails if no pod with a
// proxy is selected, or if ctx ends.
func RunProxies(ctx context.Context, client *kubeclient.Client, o Options, which Selection) ([]Check, error) {
	s := newSurvey(client, o)
	defer s.close()
	return s.proxiesOf(ctx, which)
}

func (s *survey) proxiesOf(ctx context.Context, which Selection) ([]Check, error) {
	pods, err := s.selected(ctx, which)
	if err != nil {
		return nil, err
	}
	answers, err := s.replicaSet.All(ctx)
	states := statesOf(pods, answers, err)
	askAll(ctx, states, func(ctx context.Context, p *corev1.Pod) agentAnswer { return s.askAgent(ctx, p) })
	var out []Check
	for _, state := range states {
		for _, t := range topics {
			out = append(out, t.about(state.pod.Namespace+"/"+state.pod.Name, t.of(state)))
		}
	}
	return out, ctx.Err()
}

// selected returns the selected pods with a proxy, sorted by namespace and name. It fails if there are none.
func (s *survey) selected(ctx context.Context, which Selection) ([]corev1.Pod, error) {
	all, err := kubeclient.Meshed(ctx, s.Core, which.Namespace, which.Labels)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p corev1.Pod) bool {
		return which.Pod != "" && p.Name != which.Pod && p.Name+"."+p.Namespace != which.Pod
	})
	switch {
	case len(all) > 0:
	case which.Pod != "":
		return nil, fmt.Errorf("no running pod %q has a proxy: outrider describe pod says why", which.Pod)
	default:
		return nil, fmt.Errorf("no running pod has a proxy in %s", cmp.Or(which.Namespace, "any namespace"))
	}
	slices.SortFunc(all, func(a, b corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// statesOf returns the states of pods' proxies, with the newest connection that the replicas report for each.
func statesOf(pods []corev1.Pod, answers []replicas.Replica, failed error) []proxyState {
	unasked := ""
	if failed != nil {
		unasked = failed.Error()
	}
	for _, r := range answers {
		if r.Problem != "" {
			unasked = fmt.Sprintf("replica %s: %s", r.Name, r.Problem)
		}
	}
	newest := replicas.Newest(replicas.Proxies(answers))
	out := make([]proxyState, len(pods))
	for i, p := range pods {
		out[i] = proxyState{pod: p, connected: newest[p.Name+"."+p.Namespace], unasked: unasked}
		out[i].container = kubeclient.Status(&p, contract.ProxyContainer)
	}
	return out
}

// askAll sets the agents' states. If there are more than maxAsked agents, it prefers the agents of proxies that
// already show a problem.
func askAll(ctx context.Context, all []proxyState, ask func(context.Context, *corev1.Pod) agentAnswer) {
	var order []*proxyState
	for i := range all {
		p := &all[i]
		p.agent.err = fmt.Errorf("not asked: a run asks %d agents at most; choose fewer by POD, -n or -l", maxAsked)
		if !p.runs() {
			p.agent.err = fmt.Errorf("the proxy does not run")
			continue
		}
		order = append(order, p)
	}
	slices.SortStableFunc(order, func(a, b *proxyState) int { return cmp.Compare(a.rank(), b.rank()) })
	order = order[:min(len(order), maxAsked)]
	places := make(chan struct{}, asksAtOnce)
	var asked sync.WaitGroup
	for _, p := range order {
		places <- struct{}{}
		asked.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			p.agent = ask(ctx, &p.pod)
		})
	}
	asked.Wait()
}

// rank returns 0 for a proxy that shows a problem, so that the request to its agent comes first, and else 1.
func (p proxyState) rank() int {
	if p.connection().result != OK || p.config().result != OK || !p.container.Ready {
		return 0
	}
	return 1
}

// askAgent reads the state of a pod's agent. It uses a forwarded port, so that the request comes from inside the pod.
func (s *survey) askAgent(ctx context.Context, p *corev1.Pod) (out agentAnswer) {
	address, stop, err := s.replicaSet.Forward(ctx, p.Namespace, p.Name, contract.StatusPortOf(p.Annotations))
	if err != nil {
		return agentAnswer{err: marked(err)}
	}
	defer stop()
	out.err = get(ctx, "http://"+address+contract.ReadyPath, out.readReady)
	if out.err == nil {
		out.err = get(ctx, "http://"+address+"/metrics", out.readMetrics)
	}
	return out
}

func get(ctx context.Context, at string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking the agent: %w", err)
	}
	defer res.Body.Close()
	if err := read(io.LimitReader(res.Body, 1<<20)); err != nil {
		return fmt.Errorf("the agent's answer to GET %s, %s: %w", req.URL.Path, res.Status, err)
	}
	return nil
}

// readReady reads the agent's readiness from the body of its response, whose status may be 503.
func (a *agentAnswer) readReady(from io.Reader) error {
	var is struct {
		Ready   *bool
		Reasons []struct{ Code, Message string }
	}
	if err := json.NewDecoder(from).Decode(&is); err != nil {
		return err
	}
	if is.Ready == nil {
		return fmt.Errorf("it has no field ready")
	}
	a.ready = *is.Ready
	for _, r := range is.Reasons {
		a.reasons = append(a.reasons, r.Code+": "+r.Message)
	}
	return nil
}

// readMetrics reads the remaining lifetime of the certificate from the agent's metrics, and the use of TLS from Envoy's,
// which come after them. The application's are last, and may be of any form and length.
func (a *agentAnswer) readMetrics(from io.Reader) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), contract.CertificateExpiry+" ")
		if !ok || a.has { // the application may have a line of that name
			a.tls.read(lines.Text())
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		a.has, a.certificate = true, time.Duration(seconds*float64(time.Second))
	}
	if a.has || a.tls.reported() {
		return nil
	}
	return lines.Err()
}

func (p proxyState) runs() bool { return p.container != nil && p.container.State.Running != nil }

const goesOn = "a proxy without connection goes on with what it has; its log says why: kubectl logs POD -c " + contract.ProxyContainer

func (p proxyState) connection() answer {
	switch {
	case p.connected != nil:
		return fine("to %s since %s", p.connected.Replica, p.connected.Since.UTC().Format(time.RFC3339))
	case !p.runs():
		return skipped("the proxy does not run")
	case p.unasked != "":
		return skipped("%s", p.unasked)
	}
	return warning(goesOn, "connected to no replica")
}

func (p proxyState) config() answer {
	const hint = "outrider proxy-status and outrider proxy-config show what it was sent"
	if p.connected == nil {
		return skipped("it is not known to be connected")
	}
	for _, note := range p.connected.Notes {
		if text, ok := debugapi.Unenforced(note); ok {
			return failed(hint, "not enforced: %s", strings.TrimSpace(text))
		}
	}
	behind := ""
	for _, t := range p.connected.Types {
		switch {
		case t.Rejected != nil:
			return failed(hint, "%s: rejected version %s: %s", t.Type, t.Rejected.Version, t.Rejected.Reason)
		case t.Pending > 0:
			behind = fmt.Sprintf("%s: version %s is not answered yet; accepted is %s", t.Type, t.Sent, cmp.Or(t.Acked, "none"))
		}
	}
	if behind != "" {
		return warning(hint, "%s", behind)
	}
	return fine("it accepted all that was sent: %s", plural(len(p.connected.Types), "type of resource", "types of resources"))
}

func (p proxyState) readiness() answer {
	const hint = "docs/agent.md has the reasons by their codes; outrider describe pod has the rest of the pod"
	reasons := strings.Join(p.agent.reasons, "; ")
	switch {
	case p.container == nil:
		return skipped("the proxy was not started: the pod is %s", cmp.Or(string(p.pod.Status.Phase), "new"))
	case p.container.State.Running == nil:
		return p.ended(hint)
	case p.agent.err == nil && !p.agent.ready && time.Since(p.container.State.Running.StartedAt.Time) < startLimit:
		return warning(hint, "not ready yet, and running for less than %s: %s", startLimit, reasons)
	case p.agent.err == nil && !p.agent.ready:
		return failed(hint, "not ready: %s", reasons)
	case p.container.Ready:
		return fine("ready, started %s", count(int(p.container.RestartCount)+1))
	case time.Since(p.container.State.Running.StartedAt.Time) < startLimit:
		return warning(hint, "not ready yet for the kubelet, and running for less than %s", startLimit)
	}
	return failed(hint, "the kubelet's probe fails, or has not been made")
}

func count(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// ended returns the answer for a container that does not run.
func (p proxyState) ended(hint string) answer {
	w := p.container.State.Waiting
	if w != nil && slices.Contains([]string{"", "PodInitializing", "ContainerCreating"}, w.Reason) {
		return skipped("the proxy was not started yet: %s", cmp.Or(w.Reason, "waiting"))
	}
	why := "it ended"
	if t := p.container.State.Terminated; t != nil {
		why = fmt.Sprintf("it ended with status %d: %s", t.ExitCode, cmp.Or(strings.TrimSpace(t.Message), t.Reason))
	} else if w != nil {
		why = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	return failed(hint, "the proxy does not run: %s", why)
}

func (p proxyState) certificate() answer {
	const hint = "the agent renews it from half of its life on; its readiness and log have the control plane's answer"
	switch a := p.agent; {
	case a.err != nil:
		return unknown(a.err)
	case !a.has:
		return skipped("the agent requests no certificate")
	case a.certificate == 0:
		return failed(hint, "there is none yet")
	case a.certificate < 0:
		return failed(hint, "it expired %s ago", -a.certificate.Round(time.Second))
	case a.certificate < certificateWarning:
		return warning(hint, "it expires in %s", a.certificate.Round(time.Second))
	default:
		return fine("for %s", a.certificate.Round(time.Minute))
	}
}

func (p proxyState) version() answer {
	if p.connected == nil {
		return skipped("it is not known to be connected")
	}
	if skew := p.connected.Skew(); skew != "" {
		return warning("outrider upgrade pods replaces the proxy, and restarts no application", "%s", skew)
	}
	return fine("agent %s, Envoy %s", cmp.Or(p.connected.Agent, "not known"), cmp.Or(p.connected.Envoy, "not known"))
}
