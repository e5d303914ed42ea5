package inject

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
)

// Stripped is a copy of pod without what injection added, and with what it changed as it
// was. A pod that was not injected is copied as it is. Command and arguments of a wrapped
// command come back as one list.
func Stripped(pod *corev1.Pod) (*corev1.Pod, error) {
	text, injected := pod.Annotations[statusKey]
	if !injected {
		return pod.DeepCopy(), nil
	}
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, refuse(BadAnnotation, "leave it out: it is written by injection", "annotation %s: %v", statusKey, err)
	}
	var m memory
	if text, ok := pod.Annotations[overridesKey]; ok {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, refuse(BadAnnotation, "leave it out: it is written by injection", "annotation %s: %v", overridesKey, err)
		}
	}
	out := pod.DeepCopy()
	if proxy := find(out, proxyName); proxy != nil {
		if err := giveBack(out, proxy); err != nil {
			return nil, err
		}
	}
	ours := func(names []string, own []corev1.Container) func([]corev1.Container) []corev1.Container {
		return func(list []corev1.Container) []corev1.Container {
			list = slices.DeleteFunc(list, func(c corev1.Container) bool { return slices.Contains(names, c.Name) })
			return append(list, own...)
		}
	}
	out.Spec.InitContainers = ours(s.InitContainers, m.InitContainers)(out.Spec.InitContainers)
	out.Spec.Containers = ours(s.Containers, m.Containers)(out.Spec.Containers)
	out = podspec.Ungated(out)
	m.commandsBack(out)
	m.reorder(out)
	out.Spec.Volumes = slices.DeleteFunc(out.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(s.Volumes, v.Name) })
	out.Spec.ImagePullSecrets = slices.DeleteFunc(out.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return slices.Contains(s.ImagePullSecrets, r.Name) })
	delete(out.Annotations, statusKey)
	delete(out.Annotations, overridesKey)
	out.Annotations = restored(out.Annotations, m.Annotations)
	out.Labels = restored(out.Labels, m.Labels)
	emptyToNil(&out.Spec.InitContainers)
	emptyToNil(&out.Spec.Volumes)
	emptyToNil(&out.Spec.ImagePullSecrets)
	return out, nil
}

// reorder puts the plain containers back into their order, and among them those that
// became sidecars.
func (m memory) reorder(pod *corev1.Pod) {
	if len(m.Order) == 0 {
		return
	}
	for _, name := range m.Order {
		i := slices.IndexFunc(pod.Spec.InitContainers, named(name))
		if i < 0 {
			continue
		}
		c := pod.Spec.InitContainers[i]
		c.RestartPolicy = nil
		pod.Spec.InitContainers = slices.Delete(pod.Spec.InitContainers, i, i+1)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	since := func(c corev1.Container) bool { return !slices.Contains(m.Order, c.Name) }
	first := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return !since(c) })
	before := names(pod.Spec.Containers[:max(first, 0)]) // came since, and stands first: another mesh's hold
	place := func(c corev1.Container) int {
		switch i := slices.Index(m.Order, c.Name); {
		case i >= 0:
			return i
		case slices.Contains(before, c.Name):
			return -1
		}
		return len(m.Order)
	}
	slices.SortStableFunc(pod.Spec.Containers, func(a, b corev1.Container) int { return place(a) - place(b) })
}

func restored(m map[string]string, before map[string]*string) map[string]string {
	for key, value := range before {
		if value == nil {
			delete(m, key)
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[key] = *value
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

func emptyToNil[T any](list *[]T) {
	if len(*list) == 0 {
		*list = nil
	}
}
