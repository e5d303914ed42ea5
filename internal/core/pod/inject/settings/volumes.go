package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// UserVolumes parses the annotation userVolume, which maps volume names to sources.
func UserVolumes(text string) ([]corev1.Volume, error) {
	volumes, err := byName[corev1.VolumeSource](text)
	if err != nil {
		return nil, err
	}
	var out []corev1.Volume
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		source := volumes[name]
		fields, err := asMap(source)
		switch {
		case err != nil:
			return nil, err
		case len(fields) > 1:
			return nil, fmt.Errorf("one source of %s, and not %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), " and "))
		case len(fields) == 0:
			source.EmptyDir = &corev1.EmptyDirVolumeSource{} // the API's default
		}
		if missing := missingIn(source); missing != "" {
			return nil, fmt.Errorf("%s of %s", missing, name)
		}
		out = append(out, corev1.Volume{Name: name, VolumeSource: source})
	}
	return out, nil
}

// missingIn returns what the API server would require in addition in a volume's source, for the types that
// proxies use; empty if the source is valid.
func missingIn(s corev1.VolumeSource) string {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Name == "":
		return "the name of the configMap"
	case s.Secret != nil && s.Secret.SecretName == "":
		return "the secretName"
	case s.PersistentVolumeClaim != nil && s.PersistentVolumeClaim.ClaimName == "":
		return "the claimName"
	case s.HostPath != nil && (s.HostPath.Path == "" || slices.Contains(strings.Split(s.HostPath.Path, "/"), "..")):
		return "the hostPath's path, without \"..\","
	case s.CSI != nil && s.CSI.Driver == "":
		return "the driver"
	case s.EmptyDir != nil && s.EmptyDir.SizeLimit != nil && s.EmptyDir.SizeLimit.Sign() < 0:
		return "a sizeLimit that is not negative"
	}
	return ""
}

// UserMounts parses the annotation userVolumeMount, which maps volume names to mounts.
func UserMounts(text string) ([]corev1.VolumeMount, error) {
	mounts, err := byName[corev1.VolumeMount](text)
	if err != nil {
		return nil, err
	}
	var out []corev1.VolumeMount
	for _, name := range slices.Sorted(maps.Keys(mounts)) {
		m := mounts[name]
		if m.Name = name; !strings.HasPrefix(m.MountPath, "/") || strings.Contains(m.MountPath, ":") {
			return nil, fmt.Errorf("a mountPath for %s, as /etc/%s", name, name)
		}
		for _, sub := range []string{m.SubPath, m.SubPathExpr} {
			if sub != "" && !filepath.IsLocal(sub) || m.SubPath != "" && m.SubPathExpr != "" {
				return nil, fmt.Errorf("one subPath or subPathExpr for %s, without a leading slash and \"..\"", name)
			}
		}
		if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone && *p != corev1.MountPropagationHostToContainer {
			return nil, fmt.Errorf("the mountPropagation None or HostToContainer for %s: the proxy is not privileged", name)
		}
		out = append(out, m)
	}
	return out, nil
}

// byName parses a JSON object that maps volume names to objects, or a list of objects with a name, which Istio's
// own samples use. An unknown field is an error, because the object would mean something else without it.
func byName[T any](text string) (map[string]T, error) {
	var out map[string]T
	text, err := namedObjects(text)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil || d.More() {
		return nil, fmt.Errorf("a JSON object by the names of volumes%s", causeOf(err))
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("names of volumes, of lower-case letters, digits and dashes, and not %q", name)
		}
	}
	return out, nil
}

// namedObjects turns a list of objects with names into one object whose keys are the names. Other text is
// returned unchanged.
func namedObjects(text string) (string, error) {
	var list []map[string]any
	if !strings.HasPrefix(strings.TrimSpace(text), "[") || json.Unmarshal([]byte(text), &list) != nil {
		return text, nil
	}
	out := map[string]any{}
	for i, o := range list {
		name, _ := o["name"].(string)
		if _, twice := out[name]; name == "" || twice {
			return "", fmt.Errorf("a name for each volume of the list, other than the others', as item %d lacks it", i)
		}
		delete(o, "name")
		out[name] = o
	}
	byName, err := json.Marshal(out)
	return string(byName), err
}

func causeOf(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.TrimPrefix(err.Error(), "json: ")
}

func asMap(v any) (map[string]any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(text, &out)
}
