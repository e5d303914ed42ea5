package groups

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// changed returns what a revision changed in the pod template; false: it is not in the evidence. It compares templates of
// ReplicaSets, or else pods: a pod also has what its admission added.
func changed(before, now *revision) (out []string, known bool) {
	switch {
	case before == nil:
		return nil, false
	case before.template != nil && now.template != nil:
		return compare(before.template, now.template), true
	case before.pod != nil && now.pod != nil:
		return compare(templateOf(before.pod), templateOf(now.pod)), true
	}
	return nil, false
}

// templateOf returns what a pod shows of its template.
func templateOf(p *corev1.Pod) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{Spec: *p.Spec.DeepCopy()}
	own := func(name string) bool { return strings.HasPrefix(name, "kube-api-access-") } // added for each pod
	t.Spec.Volumes = slices.DeleteFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return own(v.Name) })
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return own(m.Name) })
		}
	}
	return t
}

// ofContainer has the parts of a container that a revision may change; %s is the container. Values of variables and
// arguments may be secret, and are not shown.
var ofContainer = []struct {
	text string
	of   func(*corev1.Container) any
	show bool
}{
	{"the image of %s", func(c *corev1.Container) any { return c.Image }, true},
	{"the command of %s", func(c *corev1.Container) any { return []any{c.Command, c.Args, c.WorkingDir} }, false},
	{"the limits of %s", func(c *corev1.Container) any { return amounts(c.Resources.Limits) }, true},
	{"the requests of %s", func(c *corev1.Container) any { return amounts(c.Resources.Requests) }, true},
	{"the probes of %s", func(c *corev1.Container) any { return []any{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} }, false},
	{"the hooks of %s", func(c *corev1.Container) any { return c.Lifecycle }, false},
	{"the ports of %s", func(c *corev1.Container) any { return c.Ports }, false},
	{"the mounts of %s", func(c *corev1.Container) any { return c.VolumeMounts }, false},
	{"the security context of %s", func(c *corev1.Container) any { return c.SecurityContext }, false},
	{"the ConfigMaps or Secrets with variables of %s", func(c *corev1.Container) any { return c.EnvFrom }, false},
}

// ofPod has the parts of a template that a revision may change, beside its containers.
var ofPod = []struct {
	text string
	of   func(*corev1.PodSpec) any
	show bool
}{
	{"the service account", func(s *corev1.PodSpec) any { return s.ServiceAccountName }, true},
	{"where it may be scheduled", func(s *corev1.PodSpec) any {
		return []any{s.NodeSelector, s.Affinity, s.TopologySpreadConstraints, s.PriorityClassName}
	}, false},
	{"the security context", func(s *corev1.PodSpec) any { return s.SecurityContext }, false},
	{"the network of the pod", func(s *corev1.PodSpec) any { return []any{s.HostNetwork, s.DNSPolicy, s.DNSConfig, s.HostAliases} }, false},
}

// mostNamed is the number of names that a list shows.
const mostNamed = 5

// compare returns the differences of two templates.
func compare(a, b *corev1.PodTemplateSpec) (out []string) {
	note := func(text string, was, is any, show bool) {
		switch {
		case equality.Semantic.DeepEqual(was, is):
		case show:
			out = append(out, fmt.Sprintf("%s (%v → %v)", text, orNone(was), orNone(is)))
		default:
			out = append(out, text)
		}
	}
	named := func(what string, was, is map[string]any) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(union(was, is))) {
			if !equality.Semantic.DeepEqual(was[name], is[name]) {
				names = append(names, name)
			}
		}
		if len(names) > mostNamed {
			names = append(names[:mostNamed:mostNamed], fmt.Sprintf("%d more", len(names)-mostNamed))
		}
		if len(names) > 0 {
			out = append(out, what+" ("+strings.Join(names, ", ")+")")
		}
	}
	was, is := containers(a), containers(b)
	for _, name := range slices.Sorted(maps.Keys(union(was, is))) {
		before, after := was[name], is[name]
		switch {
		case before == nil:
			out = append(out, "container "+name+", which is new")
			continue
		case after == nil:
			out = append(out, "container "+name+", which is gone")
			continue
		}
		for _, part := range ofContainer {
			note(fmt.Sprintf(part.text, name), part.of(before), part.of(after), part.show)
		}
		named("the variables of "+name, variables(before), variables(after))
	}
	for _, part := range ofPod {
		note(part.text, part.of(&a.Spec), part.of(&b.Spec), part.show)
	}
	named("the volumes", volumes(a), volumes(b))
	named("the annotations", texts(a.Annotations), texts(b.Annotations))
	return out
}

func orNone(v any) any {
	if v == "" {
		return "none"
	}
	return v
}

func union[T any](a, b map[string]T) map[string]T {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func containers(t *corev1.PodTemplateSpec) map[string]*corev1.Container {
	out := map[string]*corev1.Container{}
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			out[list[i].Name] = &list[i]
		}
	}
	return out
}

func variables(c *corev1.Container) map[string]any {
	out := map[string]any{}
	for _, e := range c.Env {
		out[e.Name] = e
	}
	return out
}

func volumes(t *corev1.PodTemplateSpec) map[string]any {
	out := map[string]any{}
	for _, v := range t.Spec.Volumes {
		out[v.Name] = v
	}
	return out
}

func texts(all map[string]string) map[string]any {
	out := map[string]any{}
	for name, text := range all { // in any order: into a map
		out[name] = text
	}
	return out
}

// amounts formats a list of resources, sorted.
func amounts(list corev1.ResourceList) string {
	var out []string
	for name, q := range list { // in any order: sorted below
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
