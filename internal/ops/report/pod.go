package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/startup"
)

// A Pod describes the decisions about a pod (injection, order, capture) and its present state. Parts that do not
// apply are nil.
type Pod struct {
	Namespace    string      `json:"namespace"`
	Name         string      `json:"name"`
	Injection    Injection   `json:"injection"`
	Order        *Order      `json:"order,omitempty"`
	Capture      *Capture    `json:"capture,omitempty"`
	Proxy        *Proxy      `json:"proxy,omitempty"`
	ControlPlane *Connection `json:"controlPlane,omitempty"` // nil: the replicas were not read
	Notes        []string    `json:"notes,omitempty"`        // facts that could not be read, with the reason
}

// An Injection is the decision about the injection of a pod, with the rule that decided.
type Injection struct {
	State    State        `json:"state"`
	Code     verdict.Code `json:"code"` // code of the rule, or one of the codes below
	Reason   string       `json:"reason"`
	Hint     string       `json:"hint,omitempty"`
	Revision string       `json:"revision,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
}

// A State is the result of injection for a pod.
type State string

// The states.
const (
	Injected    State = "injected"
	WillBe      State = "will be injected" // the pod is in a file and does not exist yet
	NotInjected State = "not injected"
	Refused     State = "refused" // the webhook would refuse the pod
)

// Codes of reasons that come from the cluster, in addition to the codes of the injector's rules.
const (
	NoWebhook             verdict.Code = "no-webhook"               // the API server sends no pod to this control plane
	NoRevision            verdict.Code = "no-control-plane"         // there is no control plane
	NotAtCreation         verdict.Code = "not-injected-at-creation" // the pod is not injected, but a pod like it would be today
	ControlPlaneNamespace verdict.Code = "control-plane-namespace"  // the pod is in the control plane's namespace
)

// An Order describes how the pod starts.
type Order struct {
	Ways  []startup.Mechanism `json:"ways"`  // mechanisms by which containers wait for the proxy
	Start []string            `json:"start"` // names of containers, in the order of their starts
	Edges []string            `json:"edges"` // edges that the order of the init list does not imply
	Why   []string            `json:"why,omitempty"`
}

// A Proxy describes the proxy's container.
type Proxy struct {
	Kind     string `json:"kind"`
	Image    string `json:"image"`
	Next     string `json:"next,omitempty"`  // image that a new pod would get, if it differs
	State    string `json:"state,omitempty"` // ready, not ready, or does not run; empty: does not exist yet
	Restarts int32  `json:"restarts"`
	Agent    string `json:"agent,omitempty"`
	Envoy    string `json:"envoy,omitempty"`
	Skew     string `json:"skew,omitempty"` // difference to the control plane's versions
}

// States of a proxy that runs.
const (
	Ready    = "ready"
	notReady = "not ready"
)

// A Connection describes the proxy's connection to the control plane.
type Connection struct {
	Replica  string    `json:"replica"`
	Since    time.Time `json:"since"`
	Synced   bool      `json:"synced"`
	Problems []string  `json:"problems,omitempty"` // reasons why it is not connected or not synced
}

// A Mesh has the settings that determine injection: the revisions of a control plane, sorted by name with the default
// one first, and the webhook.
type Mesh struct {
	Namespace string // namespace of the control plane
	Revisions []Revision
	Webhook   bool     // the API server sends pods to the control plane
	Notes     []string // facts that could not be read, with the reason
}

// A Revision has the settings with which a revision injects.
type Revision struct {
	Name    string
	Options inject.Options
}

// A Subject is a pod with the facts that were read about it.
type Subject struct {
	Object    podfile.Object
	Namespace inject.Namespace
	Planned   bool                       // the pod does not exist yet
	Connected map[string]*debugapi.Proxy // newest connection of each proxy of the mesh, by the proxy's name
	Asked     bool                       // Connected was read from the replicas
}

// Describe returns the description of a pod. It fails if the pod's injection cannot be undone or its plan cannot be
// read.
func (m Mesh) Describe(s Subject) (Pod, error) {
	given := &s.Object.Pod
	out := Pod{Namespace: s.Namespace.Name, Name: cmp.Or(given.Name, s.Object.Name), Notes: slices.Clone(m.Notes)}
	result, err := m.decide(&out.Injection, given, s)
	if err != nil {
		return out, err
	}
	pod := given
	if out.Injection.State == WillBe {
		pod = result.Pod
	}
	if out.Injection.State != Injected && out.Injection.State != WillBe {
		return out, nil
	}
	s.Object.Pod = *pod
	if out.Order, err = orderOf(s.Object, m.kubernetes(), result); err != nil {
		return out, err
	}
	if out.Capture, err = captureOf(pod); err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	out.Proxy = proxyOf(pod, result.Pod)
	if out.Proxy != nil && s.Asked {
		out.ControlPlane = connectionOf(out.Proxy, s.Connected[given.Name+"."+s.Namespace.Name])
	}
	return out, nil
}

func (m Mesh) kubernetes() startup.Kubernetes {
	if len(m.Revisions) > 0 && m.Revisions[0].Options.Kubernetes != 0 {
		return m.Revisions[0].Options.Kubernetes
	}
	return 34
}

// decide sets i to the decision about the pod's injection. The pod itself shows whether it was injected; the rule is
// found by an injection with today's settings. decide returns the result of this injection.
func (m Mesh) decide(i *Injection, pod *corev1.Pod, s Subject) (inject.Result, error) {
	was, revision := changes.InjectedBy(pod)
	i.State, i.Revision = NotInjected, revision
	if was {
		i.State = Injected
	}
	blocked := m.blocked(s)
	if blocked.Code != "" {
		i.Code, i.Reason = blocked.Code, blocked.Sentence
		return inject.Result{Pod: pod}, nil
	}
	bare, err := inject.Stripped(pod)
	if err != nil {
		return inject.Result{}, err
	}
	result, name, err := m.today(bare, s, revision)
	var refusal *verdict.Refusal
	if errors.As(err, &refusal) {
		result.Reason, i.Hint, err = refusal.Reason, refusal.Hint, nil
	}
	if err != nil {
		return result, err
	}
	i.Code, i.Reason, i.Warnings = result.Reason.Code, result.Reason.Sentence, result.Warnings
	switch today := result.Injected; {
	case was && !today:
		i.Reason = "it was injected; a pod like it would not be today: " + i.Reason
	case was:
	case s.Planned && today:
		i.State, i.Revision = WillBe, name
	case s.Planned && refusal != nil:
		i.State = Refused
	case today:
		i.Code, i.Hint = NotAtCreation, "recreate the pod"
		i.Reason = fmt.Sprintf("a pod like it would be injected today (%s): it was made before that, or while the webhook was not reached", i.Reason)
	case refusal != nil:
		i.Reason = "a pod like it would be refused today: " + i.Reason
	}
	return result, nil
}

// blocked returns the reason why the API server sends no pod of the namespace to the webhook, or an empty one.
func (m Mesh) blocked(s Subject) verdict.Reason {
	switch {
	case len(m.Revisions) == 0:
		return verdict.Reason{Code: NoRevision, Sentence: "no control plane with injection is in namespace " + m.Namespace}
	case m.Namespace != "" && s.Namespace.Name == m.Namespace:
		return verdict.Reason{Code: ControlPlaneNamespace, Sentence: "the namespace is the control plane's own, which is never injected"}
	case !m.Webhook:
		return verdict.Reason{Code: NoWebhook, Sentence: "no MutatingWebhookConfiguration leads to the control plane: the API server sends it no pod"}
	}
	return verdict.Reason{}
}

// today injects a pod with the present settings of a revision. If revision is empty, it takes the first revision that
// injects the pod, or else the first of all.
func (m Mesh) today(pod *corev1.Pod, s Subject, revision string) (result inject.Result, name string, err error) {
	for i, r := range m.Revisions {
		o := r.Options
		o.Claims = s.Object.Claims
		one, failed := inject.Pod(pod, s.Namespace, o)
		if i == 0 || r.Name == revision || revision == "" && !result.Injected && one.Injected {
			result, name, err = one, r.Name, failed
		}
	}
	return result, name, err
}

func orderOf(o podfile.Object, on startup.Kubernetes, result inject.Result) (*Order, error) {
	report, err := plan.New(o, on, false)
	if err != nil {
		return nil, err
	}
	out := &Order{Why: result.Notes, Ways: []startup.Mechanism{}, Start: []string{}, Edges: []string{}}
	for _, c := range report.Order() {
		out.Start = append(out.Start, c.Name)
	}
	for _, e := range report.Edges {
		if e.From == contract.ProxyContainer && e.By != "" && !slices.Contains(out.Ways, e.By) {
			out.Ways = append(out.Ways, e.By)
		}
		if e.By != startup.InitDone {
			out.Edges = append(out.Edges, e.String())
		}
	}
	return out, nil
}

// proxyOf returns the description of the proxy's container; next is the same pod, injected with today's settings.
func proxyOf(pod, next *corev1.Pod) *Proxy {
	c := kubeclient.Proxy(pod)
	if c == nil {
		return nil
	}
	out := &Proxy{Kind: "plain container", Image: c.Image}
	if !slices.ContainsFunc(pod.Spec.Containers, func(o corev1.Container) bool { return o.Name == c.Name }) {
		out.Kind = "native sidecar"
	}
	if next != nil {
		if n := kubeclient.Proxy(next); n != nil && n.Image != c.Image {
			out.Next = n.Image
		}
	}
	if s := kubeclient.Status(pod, c.Name); s != nil {
		out.Restarts, out.State = s.RestartCount, Ready
		switch {
		case s.State.Running == nil:
			out.State = "does not run"
		case !s.Ready:
			out.State = notReady
		}
	}
	return out
}

// connectionOf describes the newest connection of the proxy of a pod, and sets in p the versions that this proxy
// reports. If newest is nil, the proxy has no connection.
func connectionOf(p *Proxy, newest *debugapi.Proxy) *Connection {
	if newest == nil && p.State != Ready && p.State != notReady {
		return &Connection{Problems: []string{"the proxy does not run"}}
	}
	if newest == nil {
		return &Connection{Problems: []string{"it is connected to no replica, and goes on with what it has; its log says why"}}
	}
	p.Agent, p.Envoy, p.Skew = newest.Agent, newest.Envoy, newest.Skew()
	out := &Connection{Replica: newest.Replica, Since: newest.Since}
	for _, s := range newest.Types {
		switch {
		case s.Rejected != nil:
			out.Problems = append(out.Problems, fmt.Sprintf("%s: rejected version %s: %s", s.Type, s.Rejected.Version, s.Rejected.Reason))
		case s.Pending > 0:
			out.Problems = append(out.Problems, fmt.Sprintf("%s: version %s is not answered yet", s.Type, s.Sent))
		}
	}
	for _, note := range newest.Notes {
		if text, ok := debugapi.Unenforced(note); ok {
			out.Problems = append(out.Problems, "not enforced: "+strings.TrimSpace(text))
		}
	}
	out.Synced = len(out.Problems) == 0
	return out
}
