// Package facts says what the evidence of a pod means for a diagnosis, without a judgement: the roles of its
// containers, the order that it declares, what its proxy's logs say, and when the proxy accepted connections.
package facts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A Pod is a pod's evidence with what it means. Its fields are not changed after [Of].
type Pod struct {
	*evidence.Pod
	ShowSecrets bool // quotes contain text that looks like a secret

	Proxy *evidence.Container   // nil: the pod has none
	Apps  []*evidence.Container // regular containers that no mesh has added
	Inits []*evidence.Container // init containers that no mesh has added, without native sidecars
	Order podstart.Reading      // without edges if it cannot be understood

	Serving []Service       // runs of the proxy
	Unborn  *evidence.Quote // shows that the proxy has never run, although the pod has one; nil: it has, or it is not known
	Said    Said
	// ProxyZone says which time zone was assumed for the proxy's logs; nil: none was.
	ProxyZone *evidence.Quote
	Unread    []evidence.Missing // logs that could not be read to their end

	ProxyReasons []evidence.Told // what the proxy's logs say about the ends of its runs
}

// Of returns the facts of a pod. It fails only if ctx ends.
func Of(ctx context.Context, p *evidence.Pod, showSecrets bool) (*Pod, error) {
	f := &Pod{Pod: p, ShowSecrets: showSecrets}
	f.Order, _ = podspec.ReadOrder(p.Object)
	for _, c := range p.Containers {
		spec := f.Spec(c.Name)
		switch {
		case spec == nil, c.Kind == evidence.Ephemeral:
		case c.Kind != startup.Init && (proxyNames[c.Name] || isMeshProxy(c.Name)):
			f.Proxy = cmp.Or(f.Proxy, c)
		case knownproxy.OfMesh(c.Name):
		case c.Kind == startup.Init:
			f.Inits = append(f.Inits, c)
		case c.Kind == startup.Plain:
			f.Apps = append(f.Apps, c)
		}
	}
	if err := f.readProxy(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// proxyNames lists containers that are proxies here although package knownproxy does not list them, because
// it does not know a readiness probe by which it could order them.
var proxyNames = map[string]bool{"daprd": true, "envoy": true, "envoy-sidecar": true, "consul-dataplane": true}

// isMeshProxy reports whether a mesh names its proxy so.
func isMeshProxy(container string) bool {
	_, is := knownproxy.MeshOf(container)
	return is
}

// Work returns the containers that do the pod's work: the applications, then the init containers.
func (p *Pod) Work() []*evidence.Container { return slices.Concat(p.Apps, p.Inits) }

// Status returns the status of a container, or nil.
func (p *Pod) Status(container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Object.Status.InitContainerStatuses, p.Object.Status.ContainerStatuses} {
		if i := slices.IndexFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == container }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// Condition returns the time at which a condition became true, or the zero value if it is not true.
func (p *Pod) Condition(kind corev1.PodConditionType, c evidence.Clock) evidence.Time {
	for _, v := range p.Object.Status.Conditions {
		if v.Type == kind && v.Status == corev1.ConditionTrue {
			return evidence.Second(v.LastTransitionTime.Time, c)
		}
	}
	return evidence.Time{}
}

// Deleted reports whether the pod is being deleted: by its object or, if that is older, by its events.
func (p *Pod) Deleted() bool {
	_, ends := p.EndOfAll()
	return ends || p.Object.DeletionTimestamp != nil
}

// EndOfAll returns the first event by which the kubelet tells the containers of the pod to end, and false if it does not
// tell each that runs without an end, or one started afterwards. It tells one alone for another reason, of which the
// message speaks, and all for a new sandbox.
func (p *Pod) EndOfAll() (first evidence.Quote, ends bool) {
	if p.Row != nil || len(p.QuoteEvents("", "SandboxChanged")) > 0 {
		return evidence.Quote{}, false
	}
	for _, c := range p.Containers {
		if c.Kind != startup.Plain {
			continue
		}
		e, killed := p.LastEvent(c.Name, "Killing")
		last := c.Last()
		if !killed || !strings.HasPrefix(e.Message, "Stopping container") || last == nil || last.Started.Compare(e.Last) == evidence.After {
			return evidence.Quote{}, false
		}
		if q := p.QuoteEvent(e, e.Last, e.Message); !ends || q.At.At.Before(first.At.At) {
			first, ends = q, true
		}
	}
	return first, ends
}

// ToBeGone quotes the end of the grace period of a pod that is being deleted.
func (p *Pod) ToBeGone() []evidence.Quote {
	if p.Object.DeletionTimestamp == nil {
		return nil
	}
	return []evidence.Quote{p.Quote(evidence.Second(p.Object.DeletionTimestamp.Time, evidence.APIClock), "the pod is to be gone by then")}
}

// AwaitsProxy returns the edge by which a container waits for the proxy, and false if the pod has no such edge.
func (p *Pod) AwaitsProxy(container string) (startup.Edge, bool) {
	if p.Proxy == nil {
		return startup.Edge{}, false
	}
	for _, e := range p.Order.Plan().Edges {
		if e.From == p.Proxy.Name && (e.To == container || e.To == startup.Everything) && e.By != "" {
			return e, true
		}
	}
	return startup.Edge{}, false
}

// OfMesh reports whether a container was added by the mesh of the pod's proxy.
func (p *Pod) OfMesh(container string) bool {
	if p.Proxy == nil {
		return false
	}
	mesh, _ := knownproxy.MeshOf(p.Proxy.Name)
	return slices.Contains(mesh.Init, container)
}

// CaptureFirst reports whether the capture rules are written before an init container runs.
func (p *Pod) CaptureFirst(container string) bool {
	writes := func(c corev1.Container) bool { return strings.HasSuffix(c.Name, "-init") && p.OfMesh(c.Name) }
	own := slices.IndexFunc(p.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container })
	writer := slices.IndexFunc(p.Object.Spec.InitContainers, writes)
	return own >= 0 && writer < own // without a writer, a plugin of the node has written them
}

// RanAt returns an application that certainly ran at that time, or nil.
func (p *Pod) RanAt(at evidence.Time) *evidence.Container {
	for _, app := range p.Apps {
		for _, r := range app.Runs {
			if r.Started.Compare(at) == evidence.Before && (r.Running || r.Finished.Compare(at) == evidence.After) {
				return app
			}
		}
	}
	return nil
}

// NodeThen quotes the line of kubectl get nodes about the pod's node, and reports whether it matters: the node is young,
// so that its own parts may not be up yet, or it is not ready.
func (p *Pod) NodeThen() (evidence.Quote, bool) {
	n := p.Node
	if n == nil {
		return evidence.Quote{}, false
	}
	text := fmt.Sprintf("node %s is %s", p.Object.Spec.NodeName, n.Status)
	if n.Age < Young {
		text += fmt.Sprintf(", and was %s old when that was asked", Duration(n.Age))
	}
	return evidence.Quote{Source: n.Source, Text: text}, n.Age < Young || !strings.HasPrefix(n.Status, "Ready")
}

// Quote returns a quote whose source is the pod's object.
func (p *Pod) Quote(at evidence.Time, format string, args ...any) evidence.Quote {
	return evidence.Quote{Source: p.Source, At: at, Text: fmt.Sprintf(format, args...)}
}

// QuoteEvent returns the message of an event.
func (p *Pod) QuoteEvent(e evidence.Event, at evidence.Time, text string) evidence.Quote {
	return evidence.Quote{Source: e.Source, At: at, Text: p.Show([]byte(strings.ReplaceAll(text, "\n", " ")))}
}

// Show makes a text harmless for a terminal, and masks secrets unless they were asked for.
func (p *Pod) Show(text []byte) string { return evidence.Show(text, p.ShowSecrets) }

// QuoteEvents quotes the events that have one of the reasons. If container is not empty, they must be about it.
func (p *Pod) QuoteEvents(container string, reasons ...string) (out []evidence.Quote) {
	for _, e := range p.Events {
		if slices.Contains(reasons, e.Reason) && (container == "" || e.Container == container) {
			text := e.Reason + ": " + e.Message
			if e.Count > 1 {
				text += fmt.Sprintf(" (%d times)", e.Count)
			}
			out = append(out, p.QuoteEvent(e, e.First, text))
		}
	}
	return out
}

// HasEvent reports whether there is an event with a reason about a container, whose message contains a text.
func (p *Pod) HasEvent(container, reason, text string) bool {
	return slices.ContainsFunc(p.Events, func(e evidence.Event) bool {
		return e.Container == container && e.Reason == reason && strings.Contains(e.Message, text)
	})
}

// Duration formats a duration in seconds, or in minutes and seconds.
func Duration(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", d.Round(time.Second)/time.Second)
	}
	return fmt.Sprintf("%d min %d s", d.Round(time.Second)/time.Minute, d.Round(time.Second)%time.Minute/time.Second)
}
