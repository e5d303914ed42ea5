// Package merge writes the fields that a pod's author set in a container of our name into our container, so
// that the API server accepts the result.
package merge

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/core/pod/inject/verdict"
)

// AutoImage, as the image of an author's own container, means our image.
const AutoImage = "auto"

// listKeys has the fields that identify the elements of lists, as in a strategic merge patch of the API. Any
// other list is replaced as a whole.
var listKeys = map[string]string{"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

// Container returns our container with the fields of the author's own container of that name.
func Container(ours, own corev1.Container) (corev1.Container, error) {
	if own.Image == AutoImage || own.Image == "" {
		own.Image = ours.Image
		if own.ImagePullPolicy == corev1.PullAlways { // the API server sets it for an image without a tag
			own.ImagePullPolicy = ""
		}
	}
	if own.TerminationMessagePolicy == corev1.TerminationMessageReadFile { // the API server sets it by default
		own.TerminationMessagePolicy = ""
	}
	written := own.Name
	own.Name = ours.Name
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
		return ours, verdict.Refuse(verdict.InvalidOverride, "", "the pod's own container %s: %v", written, err)
	}
	out.RestartPolicy = ours.RestartPolicy // the plan decides whether it is a sidecar
	withinLimits(out.Resources, own.Resources)
	withinSecurity(out.SecurityContext, own.SecurityContext)
	return out, nil
}

// handlers are fields of a probe and a hook that exclude one another.
var handlers = []string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}

// wholes are objects that are not merged. The API server sets the fields that a probe's author left out
// before the webhook sees the probe.
var wholes = []string{"readinessProbe", "livenessProbe", "startupProbe", "seccompProfile"}

func mergeMaps(below, above map[string]any) map[string]any {
	for name, v := range above {
		switch v := v.(type) {
		case map[string]any:
			b, ok := below[name].(map[string]any)
			if hasHandler := slices.ContainsFunc(handlers, func(h string) bool { return v[h] != nil }); hasHandler || !ok {
				break
			}
			if slices.Contains(wholes, name) {
				maps.DeleteFunc(b, func(field string, _ any) bool { return !slices.Contains(handlers, field) })
			}
			below[name] = mergeMaps(b, v)
			continue
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

// withinLimits lets our request follow a lower limit of the author's own container, and our limit follow a
// higher request: the API server refuses a request above its limit.
func withinLimits(merged, own corev1.ResourceRequirements) {
	for name, limit := range merged.Limits { // any order: keys differ
		request, ok := merged.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if _, chosen := own.Requests[name]; chosen {
			merged.Limits[name] = request
		} else {
			merged.Requests[name] = limit
		}
	}
}

// withinSecurity removes those of our settings that the API server or the kubelet refuses in combination
// with the author's.
func withinSecurity(merged, own *corev1.SecurityContext) {
	if own == nil {
		return
	}
	privileged := own.Privileged != nil && *own.Privileged || own.Capabilities != nil && slices.Contains(own.Capabilities.Add, "CAP_SYS_ADMIN")
	if privileged && own.AllowPrivilegeEscalation == nil {
		merged.AllowPrivilegeEscalation = nil
	}
	if own.RunAsUser != nil && own.RunAsNonRoot == nil {
		merged.RunAsNonRoot = new(*own.RunAsUser != 0)
	}
}
