package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/pod/podspec"
)

// autoImage, as the image of a user's own container, stands for ours.
const autoImage = "auto"

// takeOwn takes the user's own containers of our names out of the pod: they are changes
// of ours. It also notes what else the pod has before anything is added.
func (in *injection) takeOwn() error {
	in.own, in.hadVolume = map[string]corev1.Container{}, map[string]bool{}
	for _, v := range in.pod.Spec.Volumes {
		in.hadVolume[v.Name] = true
	}
	ours := func(list []corev1.Container, memory *[]corev1.Container) []corev1.Container {
		return slices.DeleteFunc(list, func(c corev1.Container) bool {
			if c.Name != proxyName && c.Name != initName {
				return false
			}
			*memory = append(*memory, c)
			in.own[c.Name] = c
			return true
		})
	}
	in.pod.Spec.InitContainers = ours(in.pod.Spec.InitContainers, &in.memory.InitContainers)
	in.pod.Spec.Containers = ours(in.pod.Spec.Containers, &in.memory.Containers)
	if len(in.pod.Spec.Containers) == 0 {
		return refuse(BadOverride, "", "the pod has no container but %s", proxyName)
	}
	c, ok := in.own[proxyName]
	if ok && !in.settings.proxy {
		return refuse(BadOverride, "leave one of the two out", "the pod has its own container %s, and annotation %s: none", proxyName, proxyKey)
	}
	// The capture leaves the proxy alone by its user; in TPROXY mode that is root anyway.
	if s := c.SecurityContext; ok && s != nil && s.RunAsUser != nil && in.settings.mode != tproxy {
		in.settings.uid = *s.RunAsUser
	}
	if s := c.SecurityContext; ok && s != nil && s.RunAsGroup != nil {
		in.settings.gid = *s.RunAsGroup
	}
	return nil
}

// rememberEdges keeps the annotations that podspec replaces by what it wrote.
func (in *injection) rememberEdges() {
	for _, key := range append([]string{podspec.EdgesAnnotation}, sortedKeys(in.pod.Annotations)...) {
		if !podspec.IsEdges(key) {
			continue
		}
		if in.memory.Annotations == nil {
			in.memory.Annotations = map[string]*string{}
		}
		in.memory.Annotations[key] = nil
		if v, there := in.pod.Annotations[key]; there {
			in.memory.Annotations[key] = &v
		}
	}
}

// listKeys are the fields by which an element of a list is the same one, as in a
// strategic merge patch of the API. Any other list is replaced.
var listKeys = map[string]string{"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

// merged is ours with what the user's own container of that name says.
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
	out.RestartPolicy = ours.RestartPolicy // where it stands is the strategy's
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

// mergeLists merges elements with the same key. A variable's value and its source
// exclude one another, so one replaces the other whole.
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
