package lint

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/finding"
	"outrider.dev/internal/podspec"
	"outrider.dev/startup"
)

// A subject is a pod with what is known about it.
type subject struct {
	podspec.Object
	Ref      finding.Object
	source   *source
	root     int  // of source; -1 if it has no place
	template path // of the pod in the object

	reading  podspec.Reading
	readErr  error
	plan     startup.Plan
	choices  []podspec.Choice
	on       startup.Kubernetes
	ns       namespace
	proxy    string // the container that takes the pod's connections; empty if none does
	injected bool   // it comes by injection
	why      string // how that is known
}

func (w *world) subject(o podspec.Object, s *source, root int, ns string) subject {
	out := subject{Object: o, Ref: finding.Object{Kind: o.Kind, Namespace: ns, Name: o.Name}, source: s, root: root,
		template: parsePath(o.Template), on: w.Kubernetes}
	out.reading, out.readErr = podspec.Read(&o.Pod)
	out.plan = out.reading.Plan()
	out.choices = podspec.Choose(out.reading, w.Kubernetes)
	return out
}

// A mesher is a mesh's proxy that connections are captured for.
type mesher struct {
	name string
	uid  int64    // whose connections are not captured
	init []string // the containers that write the capture
}

// Sources: istio manifests/charts/istio-control/istio-discovery/files/injection-template.yaml;
// linkerd2 charts/partials/templates/_proxy.tpl and _proxy-init.tpl.
var meshers = []mesher{
	{podspec.OurProxy, 1337, []string{"outrider-init"}},
	{"istio-proxy", 1337, []string{"istio-init", "istio-validation"}},
	{"linkerd-proxy", 2102, []string{"linkerd-init", "linkerd-network-validator"}},
	{"kuma-sidecar", 5678, []string{"kuma-init"}},
}

func mesherOf(name string) (mesher, bool) {
	i := slices.IndexFunc(meshers, func(m mesher) bool { return m.name == name })
	if i < 0 {
		return mesher{}, false
	}
	return meshers[i], true
}

// isMesh says whether a container is a mesh's own.
func isMesh(name string) bool {
	return slices.ContainsFunc(meshers, func(m mesher) bool { return m.name == name || slices.Contains(m.init, name) })
}

// Labels that decide about injection, those of a pod and of a namespace. A label of ours
// goes first.
var (
	podLabels       = []string{"outrider.dev/inject", "sidecar.istio.io/inject"}
	namespaceLabels = []string{"outrider.dev/injection", "istio-injection"}
)

const revisionLabel = "istio.io/rev"

// mesh finds the proxy: in the pod, or to come. The rules are those of injection, as far
// as files can tell.
func (s *subject) mesh(w *world) {
	s.ns = w.namespaces[cmp.Or(s.Ref.Namespace, w.Namespace)]
	for _, m := range meshers {
		if _, i := (startup.Plan{Containers: s.reading.Containers}).Find(m.name); i >= 0 {
			s.proxy, s.why = m.name, "the pod has the container "+m.name
			return
		}
	}
	if s.Pod.Spec.HostNetwork || s.Pod.Annotations["outrider.dev/proxy"] == "none" {
		return
	}
	wish, why := s.wish()
	switch {
	case wish == "false":
		return
	case wish == "true":
		s.why = why
	case len(s.reading.Expected) > 0 && s.reading.Expected[0] == podspec.OurProxy:
		s.why = "the pod waits for " + podspec.OurProxy
	case w.Injected:
		s.why = "injection is supposed (--injected)"
	default:
		return
	}
	s.proxy, s.injected = podspec.OurProxy, true
}

// wish is "true" or "false", if labels say so.
func (s *subject) wish() (wish, why string) {
	for _, l := range podLabels {
		if v := s.Pod.Labels[l]; v == "true" || v == "false" {
			return v, "the pod has the label " + l + "=" + v
		}
	}
	for _, l := range namespaceLabels {
		v, ok := s.ns.labels[l]
		switch {
		case !ok:
		case v == "enabled":
			return "true", "the namespace has the label " + l + "=enabled"
		default:
			return "false", ""
		}
	}
	if v := s.ns.labels[revisionLabel]; v != "" {
		return "true", "the namespace has the label " + revisionLabel + "=" + v
	}
	if v := s.Pod.Labels[revisionLabel]; v != "" {
		return "true", "the pod has the label " + revisionLabel + "=" + v
	}
	return "", ""
}

// captured says whether the pod's connections go through a proxy.
func (s *subject) captured() bool {
	return s.proxy != "" && s.Pod.Annotations["outrider.dev/capture"] != "none" && s.Pod.Annotations["sidecar.istio.io/interceptionMode"] != "NONE"
}

// kind is how the proxy stands in the pod.
func (s *subject) kind() startup.Kind {
	c, _ := s.plan.Find(s.proxy)
	return c.Kind
}

// A member is a container of the pod, and where it stands.
type member struct {
	*corev1.Container
	kind  startup.Kind
	field path
	at    int // in the order of start
}

func (s *subject) members() []member {
	var out []member
	lists := []struct {
		name string
		of   []corev1.Container
	}{{"initContainers", s.Pod.Spec.InitContainers}, {"containers", s.Pod.Spec.Containers}}
	for _, list := range lists {
		for i := range list.of {
			m := member{Container: &list.of[i], field: path{"spec", list.name, i}, at: len(out)}
			if c, n := s.plan.Find(m.Name); n >= 0 {
				m.kind = c.Kind
			}
			out = append(out, m)
		}
	}
	return out
}

func (s *subject) member(name string) (member, bool) {
	all := s.members()
	i := slices.IndexFunc(all, func(m member) bool { return m.Name == name })
	if i < 0 {
		return member{}, false
	}
	return all[i], true
}

// own are the plain containers that are no mesh's.
func (s *subject) own() []member {
	return slices.DeleteFunc(s.members(), func(m member) bool { return m.kind != startup.Plain || isMesh(m.Name) })
}

// argv is command and args together.
func (m member) argv() []string { return slices.Concat(m.Command, m.Args) }

func (m member) text() string { return strings.Join(m.argv(), " ") }

func annotation(key string) path { return path{"metadata", "annotations", key} }

// words joins names for a sentence.
func words(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
