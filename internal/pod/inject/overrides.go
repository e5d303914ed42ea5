package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/pod/podspec"
)

// autoImage, as the image of an author's own container, stands for ours.
const autoImage = "auto"

// ownContainers are the author's own containers of our names: they change fields of ours.
type ownContainers struct{ init, plain []corev1.Container }

func (o ownContainers) find(name string) (corev1.Container, bool) {
	for _, list := range [][]corev1.Container{o.init, o.plain} {
		if i := slices.IndexFunc(list, named(name)); i >= 0 {
			return list[i], true
		}
	}
	return corev1.Container{}, false
}

// withoutOwn returns a copy of the pod without the author's own containers of our names.
func withoutOwn(pod *corev1.Pod) (*corev1.Pod, ownContainers) {
	var own ownContainers
	split := func(list []corev1.Container, own *[]corev1.Container) []corev1.Container {
		var out []corev1.Container
		for _, c := range list {
			if ours(c.Name) {
				*own = append(*own, c)
			} else {
				out = append(out, c)
			}
		}
		return out
	}
	out := *pod
	out.Spec.InitContainers = split(pod.Spec.InitContainers, &own.init)
	out.Spec.Containers = split(pod.Spec.Containers, &own.plain)
	return &out, own
}

// An overrides is the annotation outrider.dev/overrides: what of the author's was changed,
// for [Stripped] to restore. A value that is null was not there.
type overrides struct {
	InitContainers []corev1.Container      `json:"initContainers,omitempty"` // the author's own of our names
	Containers     []corev1.Container      `json:"containers,omitempty"`
	Annotations    map[string]*string      `json:"annotations,omitempty"`
	Labels         map[string]*string      `json:"labels,omitempty"`
	Order          []string                `json:"order,omitempty"`    // of the plain containers, if it was changed
	Commands       map[string]imageCommand `json:"commands,omitempty"` // of images, by container
}

// annotate sets an annotation, or removes it, and keeps the value before.
func (o *overrides) annotate(pod *corev1.Pod, key string, value *string) {
	change(&pod.Annotations, &o.Annotations, key, value)
}

// label adds a label, unless there is one or the value is empty.
func (o *overrides) label(pod *corev1.Pod, key, value string) {
	if _, there := pod.Labels[key]; !there && value != "" {
		change(&pod.Labels, &o.Labels, key, &value)
	}
}

func change(m *map[string]string, before *map[string]*string, key string, value *string) {
	old, there := (*m)[key]
	if value != nil && there && old == *value || value == nil && !there {
		return
	}
	remember(before, key, old, there)
	if value == nil {
		delete(*m, key)
		return
	}
	setIn(m, key, *value)
}

// remember keeps the first value of a key.
func remember(before *map[string]*string, key, old string, there bool) {
	if *before == nil {
		*before = map[string]*string{}
	}
	if _, noted := (*before)[key]; noted {
		return
	}
	(*before)[key] = nil
	if there {
		(*before)[key] = &old
	}
}

// rememberEdges keeps the annotations that podspec replaces by the edges that it writes.
func (o *overrides) rememberEdges(pod *corev1.Pod) {
	for _, key := range append([]string{contract.DependsOn}, sortedKeys(pod.Annotations)...) {
		if podspec.IsEdges(key) {
			old, there := pod.Annotations[key]
			remember(&o.Annotations, key, old, there)
		}
	}
}

// listKeys are the fields that identify the elements of lists, as in a strategic merge patch
// of the API. Any other list is replaced.
var listKeys = map[string]string{"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

// merged returns our container with the fields of the author's own of that name.
func merged(ours, own corev1.Container) (corev1.Container, error) {
	if own.Image == autoImage || own.Image == "" {
		own.Image = ours.Image
	}
	below, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ours)
	if err != nil {
		return ours, err
	}
	above, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&own)
	if err != nil {
		return ours, err
	}
	var out corev1.Container
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(mergeMaps(below, above), &out); err != nil {
		return ours, refuse(BadOverride, "", "the pod's own container %s: %v", own.Name, err)
	}
	out.RestartPolicy = ours.RestartPolicy // the plan decides its place
	return out, nil
}

func mergeMaps(below, above map[string]any) map[string]any {
	for name, v := range above {
		switch v := v.(type) {
		case map[string]any:
			if b, ok := below[name].(map[string]any); ok {
				below[name] = mergeMaps(b, v)
				continue
			}
		case []any:
			if b, ok := below[name].([]any); ok && listKeys[name] != "" {
				below[name] = mergeLists(b, v, listKeys[name])
				continue
			}
		}
		below[name] = v
	}
	return below
}

// mergeLists replaces elements with the same key as a whole, since a variable's value and its
// source exclude one another.
func mergeLists(below, above []any, key string) []any {
	for _, v := range above {
		a, isMap := v.(map[string]any)
		i := slices.IndexFunc(below, func(o any) bool {
			b, ok := o.(map[string]any)
			return ok && isMap && b[key] == a[key]
		})
		if i < 0 {
			below = append(below, v)
			continue
		}
		below[i] = v
	}
	return below
}
