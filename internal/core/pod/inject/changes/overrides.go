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

// An Overrides is the content of the annotation outrider.dev/overrides: the parts of the author's pod that
// injection changed, which [Undone] restores. A null value in a map means that the pod did not have the key.
type Overrides struct {
	InitContainers []corev1.Container          `json:"initContainers,omitempty"` // the author's own containers with our names
	Containers     []corev1.Container          `json:"containers,omitempty"`
	Annotations    map[string]*string          `json:"annotations,omitempty"`
	Labels         map[string]*string          `json:"labels,omitempty"`
	NodeSelector   map[string]*string          `json:"nodeSelector,omitempty"`
	Order          []string                    `json:"order,omitempty"`     // names of the regular containers, if the order was changed or contains one of our names
	InitOrder      []string                    `json:"initOrder,omitempty"` // names of the init containers, if one of them is ours
	Commands       map[string]imagecmd.Written `json:"commands,omitempty"`  // commands taken from images, by container
	Args           map[string]int              `json:"args,omitempty"`      // by container with a gate: number of words at the end of its command that were its args
	Hooks          []string                    `json:"hooks,omitempty"`     // other meshes' proxies to which injection added a hook with their own program
	Empty          []string                    `json:"empty,omitempty"`     // lists and maps that were present but empty: see [vessels]
	Ports          map[string]string           `json:"ports,omitempty"`     // names of ports that injection replaced by numbers, by container/handler
}

// Annotate sets an annotation, or removes it if value is nil. It records the previous value.
func (o *Overrides) Annotate(pod *corev1.Pod, key string, value *string) {
	change(&pod.Annotations, &o.Annotations, key, value)
}

// Write writes the annotations status and overrides, and returns whether a container was added to the given pod.
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

// KeepOrder records the order of the regular containers in the first pod if the second pod has another order.
func (o *Overrides) KeepOrder(arranged, ordered *corev1.Pod) {
	if was := containers.Names(arranged.Spec.Containers); o.Order == nil && !slices.Equal(was, containers.Names(ordered.Spec.Containers)) {
		o.Order = was
	}
}

// Select adds a label to the pod's nodeSelector. It records the previous value.
func (o *Overrides) Select(pod *corev1.Pod, key, value string) {
	change(&pod.Spec.NodeSelector, &o.NodeSelector, key, &value)
}

// Label adds a label and records that. It does nothing if the pod has the label or the value is empty.
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

// remember records the original value of a key. Only the first call for a key has an effect.
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

// KeepEdges records the annotations with edges, which podspec replaces.
func (o *Overrides) KeepEdges(pod *corev1.Pod) {
	for _, key := range append([]string{contract.DependsOn}, slices.Sorted(maps.Keys(pod.Annotations))...) {
		if request.IsEdges(key) {
			old, there := pod.Annotations[key]
			remember(&o.Annotations, key, old, there)
		}
	}
}

// A vessel is a list or a map of a pod to which injection may add elements.
type vessel struct {
	name  string
	none  bool       // it has no element; it may be nil
	empty bool       // it has no element, and is not nil
	set   func(bool) // makes a list or map without elements empty (true) or nil (false)
}

// vessels returns the lists and maps of a pod. A list or map of a container has the name CONTAINER/FIELD.
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

// KeepEmpty records the lists and maps of the author's pod that are empty but not nil.
func (o *Overrides) KeepEmpty(pod *corev1.Pod) {
	for _, v := range vessels(pod) {
		if v.empty {
			o.Empty = append(o.Empty, v.name)
		}
	}
}

// restoreEmpty makes each list or map without elements empty or nil, as it was in the author's pod.
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
