package lint

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/doctor/lint/text"
	"outrider.dev/startup"
)

// A subject is a pod with its plan and its position in the file.
type subject struct {
	podfile.Object
	located
	template path // path of the pod in the object

	reading  podstart.Reading
	readErr  error
	plan     startup.Plan
	run      startup.Plan // plan of the pod as it will run beside another mesh's proxy; else plan
	choices  []mechanism.Choice
	on       startup.Kubernetes
	ns       namespace
	proxy    string // name of the proxy's container; empty: the pod has no proxy
	injected bool   // injection will add the proxy
	beside   bool   // injection will add order or parking to the proxy of another mesh

	inject  func(*corev1.Pod) (inject.Result, error) // nil if the pod contains a proxy, and injection adds nothing to it
	reason  verdict.Reason                           // reason for or against injection, if the pod contains no proxy
	result  inject.Result                            // result of the injection
	refusal *verdict.Refusal                         // reason why injection would refuse the pod
}

func (w *world) subject(o podfile.Object, file *text.File) subject {
	out := subject{Object: o, located: located{file.Of(o), finding.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}},
		template: parsePath(o.Template), on: w.Kubernetes}
	out.reading, out.readErr = podspec.Read(&o.Pod)
	out.plan = out.reading.Plan()
	out.run = out.plan
	out.choices = mechanism.Choose(out.reading, w.Kubernetes)
	return out
}

// findProxy sets the proxy: the one in the pod, or else the one that injection will add. It assumes that each
// revision that the files name exists and injects.
func (s *subject) findProxy(w *world) {
	s.ns = w.namespaces[cmp.Or(s.Ref.Namespace, w.Namespace)]
	for _, m := range knownproxy.Meshes {
		if m.Proxy == istioProxy && inject.Requests(&s.Pod, inject.Options{}) {
			continue
		}
		if _, i := (startup.Plan{Containers: s.reading.Containers}).Find(m.Proxy); i >= 0 {
			s.proxy = m.Proxy
			break
		}
	}
	if s.proxy == contract.ProxyContainer {
		return
	}
	waits := len(s.reading.Expected) > 0 && s.reading.Expected[0] == contract.ProxyContainer
	o := inject.Options{Kubernetes: s.on, Claims: s.Claims, Manual: w.Injected || waits, Revision: cmp.Or(s.ns.labels[contract.RevisionLabel], s.Pod.Labels[contract.RevisionLabel])}
	ns := inject.Namespace{Name: cmp.Or(s.Ref.Namespace, w.Namespace), Labels: s.ns.labels, Annotations: s.ns.annotations}
	if ns.Labels == nil {
		ns.Labels = map[string]string{} // a namespace that has no labels in the files counts as unlabelled
	}
	if inject.NamesDefault(ns) {
		o.Revision = ""
	}
	reason := inject.Decide(&s.Pod, ns, o)
	if s.proxy != "" {
		s.findBeside(reason, func(pod *corev1.Pod) (inject.Result, error) { return inject.Pod(pod, ns, o) })
		return
	}
	s.reason = reason
	o.Manual = true // also for pods without injection, so that annotations without effect are found there
	s.inject = func(pod *corev1.Pod) (inject.Result, error) { return inject.Pod(pod, ns, o) }
	var err error
	if s.result, err = s.inject(&s.Pod); s.reason.Code != verdict.Injected && !s.asksByAnnotation() || !s.result.Proxy {
		return
	}
	errors.As(err, &s.refusal)
	s.proxy, s.injected = contract.ProxyContainer, true
}

// findBeside sets the result of an injection that adds order or parking to the proxy of another mesh in the pod.
func (s *subject) findBeside(reason verdict.Reason, injects func(*corev1.Pod) (inject.Result, error)) {
	if reason.Code != verdict.Injected {
		return
	}
	result, err := injects(&s.Pod)
	if errors.As(err, &s.refusal); s.refusal != nil {
		return
	}
	if s.beside = result.Injected; s.beside {
		s.reason, s.result, s.inject = reason, result, injects
		if r, err := podspec.ReadOrder(result.Pod); err == nil {
			s.run = r.Plan()
		}
	}
}

// mayBeside reports whether the pod's author wants injection to add to the proxy of another mesh, but nothing in the files
// requests injection.
func (s *subject) mayBeside() bool {
	return s.Pod.Annotations[contract.Proxy] == "none" && !s.beside && s.refusal == nil && s.ns.at == nil && s.Pod.Annotations[contract.Status] == ""
}

// asksByAnnotation reports whether the author requests injection only by an annotation. The API server then does not
// select the pod, but the author wants to know the result of an injection.
func (s *subject) asksByAnnotation() bool {
	return s.reason.Code == verdict.NotRequested && slices.ContainsFunc(request.InjectLabels, func(key string) bool { return s.Pod.Annotations[key] == "true" })
}

// asRun returns the pod in the form in which it will run: injected, if injection takes place.
func (s *subject) asRun() *corev1.Pod {
	if (s.reason.Code == verdict.Injected || s.injected) && s.result.Injected {
		return s.result.Pod
	}
	return &s.Pod
}

// captured reports whether the pod's connections go through a proxy.
func (s *subject) captured() bool {
	if s.injected {
		return s.result.Captured
	}
	template, named := s.Pod.Annotations["inject.istio.io/templates"]
	if named && !strings.Contains(template, "sidecar") {
		return false // a gateway, or gRPC without a proxy: connections are not captured
	}
	return s.proxy != "" && s.Pod.Annotations[contract.Capture] != "none" && s.Pod.Annotations[contract.InterceptionMode] != "NONE"
}

// kind returns the kind of the proxy's container.
func (s *subject) kind() startup.Kind {
	c, _ := s.run.Find(s.proxy)
	return c.Kind
}

// A member is a container of the pod with its position.
type member struct {
	*corev1.Container
	kind  startup.Kind
	field path
	at    int // position in the order of start
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

// own returns the regular containers that no mesh has added.
func (s *subject) own() []member {
	return slices.DeleteFunc(s.members(), func(m member) bool { return m.kind != startup.Plain || knownproxy.OfMesh(m.Name) })
}

// argv returns the command followed by the args.
func (m member) argv() []string { return slices.Concat(m.Command, m.Args) }

func annotation(key string) path { return path{"metadata", "annotations", key} }

// words joins names for a sentence: "a, b and c".
func words(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
