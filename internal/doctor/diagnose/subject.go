package diagnose

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A subject is a pod with the roles of its containers.
type subject struct {
	*evidence.Pod
	options Options

	proxy   *evidence.Container   // nil: the pod has none
	apps    []*evidence.Container // regular containers that no mesh has added
	inits   []*evidence.Container // init containers that no mesh has added, without native sidecars
	reading podstart.Reading
	capture capturescope.Scope

	symptoms []symptom
	serving  []service // runs of the proxy
	known    proxyLog

	proxyZone *Quote // the time zone that is assumed for the proxy's log; nil: its zone is known, or no zone is assumed
}

// newSubject determines the roles of the containers, and reads the logs. It fails only if ctx ends.
func newSubject(ctx context.Context, p *evidence.Pod, o Options) (*subject, error) {
	s := &subject{Pod: p, options: o}
	s.reading, _ = podspec.ReadOrder(p.Object) // if the plan cannot be understood, there are no edges
	for _, c := range p.Containers {
		spec := specOf(p.Object, c.Name)
		switch {
		case spec == nil, c.Kind == evidence.Ephemeral:
		case proxyNames[c.Name] || knownproxy.IsProxy(spec) && knownproxy.OfMesh(c.Name):
			if s.proxy == nil {
				s.proxy = c
			}
		case knownproxy.OfMesh(c.Name):
		case c.Kind == startup.Init:
			s.inits = append(s.inits, c)
		case c.Kind == startup.Plain:
			s.apps = append(s.apps, c)
		}
	}
	proxy := ""
	if s.proxy != nil {
		proxy = s.proxy.Name
	}
	s.capture = capturescope.Of(p.Object, proxy)
	if err := s.readLogs(ctx); err != nil {
		return nil, err
	}
	s.readServing()
	return s, nil
}

// proxyNames lists containers that are proxies here although package knownproxy does not list them, because
// it does not know a readiness probe by which it could order them.
var proxyNames = map[string]bool{"daprd": true, "envoy": true, "envoy-sidecar": true}

func specOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		if i := slices.IndexFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// waits returns the edge by which a container waits for the proxy, and false if the pod has no such edge.
func (s *subject) waits(container string) (startup.Edge, bool) {
	if s.proxy == nil {
		return startup.Edge{}, false
	}
	for _, e := range s.reading.Plan().Edges {
		if e.From == s.proxy.Name && (e.To == container || e.To == startup.Everything) && e.By != "" {
			return e, true
		}
	}
	return startup.Edge{}, false
}

// quote returns a quote whose source is the pod's object.
func (s *subject) quote(at evidence.Time, text string) Quote { return Quote{s.Source, at, text} }

func (s *subject) show(text []byte) string { return evidence.Show(text, s.options.ShowSecrets) }

// runText describes a run of a container.
func runText(r evidence.Run) string {
	switch {
	case r.Running:
		return "runs"
	case r.Exit == nil:
		return "ended"
	}
	return exitText(r)
}
