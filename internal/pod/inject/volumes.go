package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/pod/podspec"
)

// Volumes of the proxy, and where the agent reads and writes (internal/agent/config).
const (
	workVolume = "outrider-work"
	infoVolume = "outrider-podinfo"
	tokenName  = "outrider-token"
	rootVolume = "outrider-root"
	bootVolume = "outrider-bootstrap"

	workDir  = "/etc/outrider/proxy"
	infoDir  = "/etc/outrider/pod"
	tokenDir = "/var/run/secrets/tokens"
	rootDir  = "/var/run/secrets/outrider"
	bootDir  = "/etc/outrider/custom-bootstrap"
	bootFile = "custom_bootstrap.json" // Istio's
)

// tokenAudience and tokenSeconds are Istio's, so that another CA behind the same service
// accepts the token.
const (
	tokenAudience = "istio-ca"
	tokenSeconds  = 43200
)

// ourVolumes are the names of all that are ours.
var ourVolumes = append([]string{workVolume, infoVolume, tokenName, rootVolume, bootVolume}, podspec.Volumes...)

// ourDirs are the directories in the proxy's container that are ours, with all below them.
var ourDirs = []string{workDir, infoDir, tokenDir, rootDir, bootDir, podspec.OwnDir}

// userVolumes reads annotation userVolume: sources by name.
func userVolumes(text string) ([]corev1.Volume, error) {
	named, err := byName[corev1.VolumeSource](text)
	if err != nil {
		return nil, err
	}
	var out []corev1.Volume
	for _, name := range sortedKeys(named) {
		source := named[name]
		fields, err := asMap(source)
		switch {
		case err != nil:
			return nil, err
		case len(fields) > 1:
			return nil, fmt.Errorf("one source of %s, and not %s", name, strings.Join(sortedKeys(fields), " and "))
		case len(fields) == 0:
			source.EmptyDir = &corev1.EmptyDirVolumeSource{} // as the API has it
		}
		out = append(out, corev1.Volume{Name: name, VolumeSource: source})
	}
	return out, nil
}

// userMounts reads annotation userVolumeMount: mounts by the name of the volume.
func userMounts(text string) ([]corev1.VolumeMount, error) {
	named, err := byName[corev1.VolumeMount](text)
	if err != nil {
		return nil, err
	}
	var out []corev1.VolumeMount
	for _, name := range sortedKeys(named) {
		m := named[name]
		if m.Name = name; !strings.HasPrefix(m.MountPath, "/") || strings.Contains(m.MountPath, ":") {
			return nil, fmt.Errorf("a mountPath for %s, as /etc/%s", name, name)
		}
		out = append(out, m)
	}
	return out, nil
}

// byName reads JSON objects by the names of volumes. A field that they do not have is a
// mistake: without it the object says something else.
func byName[T any](text string) (map[string]T, error) {
	var out map[string]T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil || d.More() {
		return nil, fmt.Errorf("a JSON object by the names of volumes%s", causeOf(err))
	}
	for name := range out {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("names of volumes, of lower-case letters, digits and dashes, and not %q", name)
		}
	}
	return out, nil
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

// checkVolumes refuses a pod that has volumes by our names, or has the proxy mount what is
// not there, or where ours are. Before anything is added.
func (in *injection) checkVolumes() error {
	const rename = "give it another name"
	gated := false
	in.each(func(c *corev1.Container) { gated = gated || podspec.NeedsAgent(c) })
	has := map[string]corev1.Volume{}
	for _, v := range in.pod.Spec.Volumes {
		has[v.Name] = v
		written := gated && slices.Contains(podspec.Volumes, v.Name)
		if slices.Contains(ourVolumes, v.Name) && !written {
			return refuse(VolumeTaken, rename, "the pod has its own volume %s, and injection adds one of that name", v.Name)
		}
	}
	if !in.settings.proxy {
		return nil
	}
	var err error
	if text, ok := in.pod.Annotations[volumeKey]; ok {
		if in.volumes, err = userVolumes(text); err != nil {
			return err // seen before: checkAnnotations
		}
	}
	for _, v := range in.volumes {
		old, there := has[v.Name]
		switch {
		case slices.Contains(ourVolumes, v.Name):
			return refuse(VolumeTaken, rename, "annotation %s: injection adds a volume %s itself", volumeKey, v.Name)
		case there && !equality.Semantic.DeepEqual(old, v):
			return refuse(VolumeTaken, rename, "annotation %s: the pod has another volume %s", volumeKey, v.Name)
		}
		has[v.Name] = v
	}
	if text, ok := in.pod.Annotations[mountKey]; ok {
		if in.mounts, err = userMounts(text); err != nil {
			return err
		}
	}
	for i, m := range in.mounts {
		if _, there := has[m.Name]; !there {
			return refuse(BadAnnotation, "add it to annotation "+volumeKey, "annotation %s: there is no volume %s", mountKey, m.Name)
		}
		same := func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }
		ours := func(dir string) bool { return podspec.Overlap(dir, m.MountPath) }
		if slices.ContainsFunc(ourDirs, ours) || slices.ContainsFunc(in.mounts[:i], same) {
			return refuse(MountTaken, "mount it somewhere else", "annotation %s: something else is mounted at %s already", mountKey, m.MountPath)
		}
	}
	return nil
}

// clashing is a name or a place of the gates' that the pod uses for something else, as a
// refusal; any other error of writing them is one of the order.
func clashing(err error) error {
	var t *podspec.TakenError
	switch {
	case !errors.As(err, &t):
		return refuse(BadGraph, "", "%v", err)
	case t.Container == "":
		return refuse(VolumeTaken, "give it another name", "%v", t)
	}
	return refuse(MountTaken, "mount it somewhere else", "%v", t)
}

func (in *injection) proxyMounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: workVolume, MountPath: workDir},
		{Name: infoVolume, MountPath: infoDir, ReadOnly: true},
		{Name: tokenName, MountPath: tokenDir, ReadOnly: true},
		{Name: rootVolume, MountPath: rootDir, ReadOnly: true},
	}
	if in.pod.Annotations[bootstrapKey] != "" {
		out = append(out, corev1.VolumeMount{Name: bootVolume, MountPath: bootDir, ReadOnly: true})
	}
	return append(out, in.mounts...)
}

// addVolumes adds those of the proxy.
func (in *injection) addVolumes() {
	seconds := int64(tokenSeconds)
	field := func(path, name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: name}}
	}
	root := in.o.RootCA
	if root == "" {
		root = "outrider-ca-root-cert"
	}
	configMap := func(name string) *corev1.ConfigMapVolumeSource {
		return &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	list := []corev1.Volume{
		{Name: workVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: infoVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			field("labels", "metadata.labels"), field("annotations", "metadata.annotations")}}}},
		{Name: tokenName, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: tokenAudience, ExpirationSeconds: &seconds, Path: tokenName}}}}}},
		{Name: rootVolume, VolumeSource: corev1.VolumeSource{ConfigMap: configMap(root)}},
	}
	if name := in.pod.Annotations[bootstrapKey]; name != "" {
		list = append(list, corev1.Volume{Name: bootVolume, VolumeSource: corev1.VolumeSource{ConfigMap: configMap(name)}})
	}
	for _, v := range in.volumes {
		if !in.hadVolume[v.Name] { // else it is the same
			list = append(list, v)
		}
	}
	in.pod.Spec.Volumes = append(in.pod.Spec.Volumes, list...)
}
