package changes

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/request"
)

// Undone returns a copy of a pod as it was before injection, and lists what cannot be restored. Before it undoes
// anything else, it calls the given function on the copy, for changes that the annotations do not record. A pod
// that was not injected is only copied.
func Undone(pod *corev1.Pod, first func(*corev1.Pod) error) (out *corev1.Pod, lost []string, err error) {
	out = pod.DeepCopy()
	if _, injected := pod.Annotations[contract.Status]; !injected {
		return out, nil, nil
	}
	var s status
	if err := recorded(pod, contract.Status, &s); err != nil {
		return nil, nil, err
	}
	if s.Revision == "" { // injection always writes it
		return nil, nil, verdict.Refuse(verdict.InvalidAnnotation, "restore it, or remove by hand what injection added", "annotation %s: %s does not record what injection added", contract.Status, pod.Annotations[contract.Status])
	}
	var before Overrides
	if _, ok := pod.Annotations[contract.Overrides]; !ok {
		lost = append(lost, "the annotation "+contract.Overrides+" is missing: what injection replaced is unknown")
	} else if err := recorded(pod, contract.Overrides, &before); err != nil {
		return nil, nil, err
	}
	lost = append(lost, before.unknownWords(pod)...)
	if err := first(out); err != nil {
		return nil, lost, err
	}
	return undo(out, s, before), lost, nil
}

// recorded reads an annotation that injection wrote.
func recorded(pod *corev1.Pod, key string, into any) error {
	if err := json.Unmarshal([]byte(pod.Annotations[key]), into); err != nil {
		return verdict.Refuse(verdict.InvalidAnnotation, "leave it out: it is written by injection", "annotation %s: %v", key, err)
	}
	return nil
}

// undo removes from out what injection added, and restores what injection changed.
func undo(out *corev1.Pod, s status, before Overrides) *corev1.Pod {
	start, _ := request.Start(out.Annotations)
	added := func(c corev1.Container) bool {
		return slices.Contains(append(s.InitContainers, s.Containers...), c.Name)
	}
	out.Spec.InitContainers = append(slices.DeleteFunc(out.Spec.InitContainers, added), before.InitContainers...)
	place := slices.IndexFunc(out.Spec.Containers, containers.Named(contract.ProxyContainer))
	out.Spec.Containers = slices.DeleteFunc(out.Spec.Containers, added)
	if start != request.Off || place < 0 {
		place = len(out.Spec.Containers)
	}
	out.Spec.Containers = slices.Insert(out.Spec.Containers, place, before.Containers...) // at the end, or with "start: off" at the position where the author listed the proxy
	out = podspec.Ungated(out)
	imagecmd.Restore(out, before.Commands)
	before.restoreWords(out)
	before.restoreHooks(out)
	reorder(out, before.Order)
	sortAs(out.Spec.InitContainers, before.InitOrder)
	out.Spec.Volumes = slices.DeleteFunc(out.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(s.Volumes, v.Name) })
	out.Spec.ImagePullSecrets = slices.DeleteFunc(out.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return slices.Contains(s.ImagePullSecrets, r.Name) })
	delete(out.Annotations, contract.Status)
	delete(out.Annotations, contract.Overrides)
	out.Annotations = restored(out.Annotations, before.Annotations)
	out.Labels = restored(out.Labels, before.Labels)
	out.Spec.NodeSelector = restored(out.Spec.NodeSelector, before.NodeSelector)
	before.restoreEmpty(out)
	return out
}

// reorder restores the order of the regular containers. Containers that injection made sidecars become regular
// containers again.
func reorder(pod *corev1.Pod, order []string) {
	if len(order) == 0 {
		return
	}
	for _, name := range order {
		i := slices.IndexFunc(pod.Spec.InitContainers, containers.Named(name))
		if i < 0 {
			continue
		}
		c := pod.Spec.InitContainers[i]
		c.RestartPolicy = nil
		pod.Spec.InitContainers = slices.Delete(pod.Spec.InitContainers, i, i+1)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	sortAs(pod.Spec.Containers, order)
}

// sortAs sorts a list in the recorded order. Containers that were added later stay before or after the recorded
// ones.
func sortAs(list []corev1.Container, order []string) {
	first := slices.IndexFunc(list, func(c corev1.Container) bool { return slices.Contains(order, c.Name) })
	before := containers.Names(list[:max(first, 0)]) // containers added later at the front, such as another mesh's proxy that holds the application
	place := func(c corev1.Container) int {
		switch i := slices.Index(order, c.Name); {
		case i >= 0:
			return i
		case slices.Contains(before, c.Name):
			return -1
		}
		return len(order)
	}
	slices.SortStableFunc(list, func(a, b corev1.Container) int { return place(a) - place(b) })
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
	return m
}
