package changes

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/request"
)

// An Overrides is the annotation outrider.dev/overrides. It holds what injection changed of the author's
// pod, for [Undone] to restore. A null value means that there was none.
type Overrides struct {
	InitContainers []corev1.Container          `json:"initContainers,omitempty"` // the author's own containers with our names
	Containers     []corev1.Container          `json:"containers,omitempty"`
	Annotations    map[string]*string          `json:"annotations,omitempty"`
	Labels         map[string]*string          `json:"labels,omitempty"`
	NodeSelector   map[string]*string          `json:"nodeSelector,omitempty"`
	Order          []string                    `json:"order,omitempty"`     // of the plain containers, if it was changed or contains one of our names
	InitOrder      []string                    `json:"initOrder,omitempty"` // of the init containers, if it contains one of our names
	Commands       map[string]imagecmd.Written `json:"commands,omitempty"`  // commands of images, by container
	Args           map[string]int              `json:"args,omitempty"`      // by container with a gate: how many words of its command were args
	Hooks          []string                    `json:"hooks,omitempty"`     // other meshes' proxies that got a hook with their own program
	Empty          []string                    `json:"empty,omitempty"`     // lists and maps that were there without an element: see [vessels]
	Ports          map[string]string           `json:"ports,omitempty"`     // names of ports that became numbers, by container/handler
}

// Annotate sets an annotation, or removes it if value is nil, and keeps the previous value.
func (o *Overrides) Annotate(pod *corev1.Pod, key string, value *string) {
	change(&pod.Annotations, &o.Annotations, key, value)
}

// Write writes both annotations, and returns whether a container was added to the given pod.
func (o *Overrides) Write(pod, given *corev1.Pod, revision string) (added bool, err error) {
	s := statusOf(given, pod, revision)
	for key, value := range map[string]any{contract.Status: s, contract.Overrides: o} { // any order: keys differ
		text, err := json.Marshal(value)
		if err != nil {
			return false, err
		}
		setIn(&pod.Annotations, key, string(text))
	}
	return len(s.InitContainers)+len(s.Containers) > 0, nil
}

// KeepOrder records the order of the plain containers if writing the edges has changed it.
func (o *Overrides) KeepOrder(arranged, ordered *corev1.Pod) {
	if was := containers.Names(arranged.Spec.Containers); o.Order == nil && !slices.Equal(was, containers.Names(ordered.Spec.Containers)) {
		o.Order = was
	}
}

// Select adds a label to the pod's nodeSelector.
func (o *Overrides) Select(pod *corev1.Pod, key, value string) {
	change(&pod.Spec.NodeSelector, &o.NodeSelector, key, &value)
}

// Label adds a label, unless the pod has it or the value is empty.
func (o *Overrides) Label(pod *corev1.Pod, key, value string) {
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

// remember records the original value of a key. A second call for the key changes nothing.
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

// KeepEdges records the annotations that podspec replaces by the edges that it writes.
func (o *Overrides) KeepEdges(pod *corev1.Pod) {
	for _, key := range append([]string{contract.DependsOn}, slices.Sorted(maps.Keys(pod.Annotations))...) {
		if request.IsEdges(key) {
			old, there := pod.Annotations[key]
			remember(&o.Annotations, key, old, there)
		}
	}
}

// A vessel is a list or a map that injection may fill.
type vessel struct {
	name  string
	none  bool       // it has no element
	empty bool       // it has no element, but is there
	set   func(bool) // if it has no element: sets whether it is there
}

// vessels returns the lists and maps of a pod, and those of its containers under the name NAME/FIELD.
func vessels(pod *corev1.Pod) []vessel {
	out := []vessel{listed("initContainers", &pod.Spec.InitContainers), listed("volumes", &pod.Spec.Volumes), listed("imagePullSecrets", &pod.Spec.ImagePullSecrets),
		mapped("annotations", &pod.Annotations), mapped("labels", &pod.Labels), mapped("nodeSelector", &pod.Spec.NodeSelector)}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			out = append(out, listed(c.Name+"/command", &c.Command), listed(c.Name+"/args", &c.Args), listed(c.Name+"/env", &c.Env), listed(c.Name+"/volumeMounts", &c.VolumeMounts))
		}
	}
	return out
}

func listed[T any](name string, list *[]T) vessel {
	return vessel{name, len(*list) == 0, *list != nil && len(*list) == 0, func(there bool) {
		if *list = nil; there {
			*list = []T{}
		}
	}}
}

func mapped(name string, m *map[string]string) vessel {
	return vessel{name, len(*m) == 0, *m != nil && len(*m) == 0, func(there bool) {
		if *m = nil; there {
			*m = map[string]string{}
		}
	}}
}

// KeepEmpty records which lists and maps the author's pod has without an element.
func (o *Overrides) KeepEmpty(pod *corev1.Pod) {
	for _, v := range vessels(pod) {
		if v.empty {
			o.Empty = append(o.Empty, v.name)
		}
	}
}

// restoreEmpty restores whether a list or map without an element is there.
func (o Overrides) restoreEmpty(pod *corev1.Pod) {
	for _, v := range vessels(pod) {
		if was := slices.Contains(o.Empty, v.name); v.empty || was && v.none {
			v.set(was)
		}
	}
}
func setIn(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
