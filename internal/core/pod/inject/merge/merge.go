// Package merge overrides the fields of our container by those that a pod's author set in a container of the same
// name. The API server accepts the result.
package merge

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/core/pod/inject/verdict"
)

// AutoImage is the image by which an author's own container requests our image.
const AutoImage = "auto"

// listKeys maps fields that are lists to the field that identifies an element, as in a strategic merge patch of
// the API. Any other list is replaced as a whole.
var listKeys = map[string]string{"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

// Container returns our container, in which the fields of the author's own container of that name take
// precedence.
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
	out.RestartPolicy = ours.RestartPolicy // the plan, not the author, decides whether it is a sidecar
	withinLimits(out.Resources, own.Resources)
	withinSecurity(out.SecurityContext, own.SecurityContext)
	return out, nil
}

// handlers are the fields of a probe or a hook of which only one can be set.
var handlers = []string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}

// wholes are objects that replace ours as a whole. They cannot be merged: the API server sets the defaults of a
// probe before the webhook sees it, and a merge would mistake the defaults for values that the author chose.
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

// mergeLists merges two lists. An element replaces the whole element with the same key, because value and
// valueFrom of a variable cannot both be set.
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

// withinLimits keeps each request within its limit, as the API server requires: our request is lowered to the
// author's limit, or our limit is raised to the author's request.
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

// withinSecurity removes each of our settings that the API server or the kubelet would refuse in combination
// with the author's settings.
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
