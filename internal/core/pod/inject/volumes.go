package inject

import (
	"cmp"
	"errors"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/order"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/validation"
)

// tokenAudience and tokenSeconds have Istio's values, so that a CA other than ours behind the same service
// accepts the token.
const (
	tokenAudience = "istio-ca"
	tokenSeconds  = 43200
)

// workLimit is the size limit of the proxy's work volume. It has space for Envoy's bootstrap (up to 1 MiB from a
// ConfigMap, and twice that while it is rewritten) and for certificates of 20 kB. The rest is for files that an
// author's bootstrap refers to.
var workLimit = resource.MustParse("32Mi")

// ourVolumes lists the names of all volumes that injection adds.
var ourVolumes = append([]string{contract.WorkVolume, contract.PodInfoVolume, contract.TokenVolume, contract.RootVolume, contract.BootstrapVolume}, podspec.Volumes...)

// ourDirs lists the directories in the proxy's container that are ours, with everything below them.
var ourDirs = []string{contract.WorkDir, contract.PodInfoDir, contract.TokenDir, contract.RootDir, contract.BootstrapDir, contract.OwnDir}

// proxyVolumesOf returns the author's volumes and mounts for the proxy. It refuses volumes with one of our names,
// mounts of volumes that do not exist, and mounts that cover ours.
func proxyVolumesOf(in input, s effective) ([]corev1.Volume, []corev1.VolumeMount, error) {
	const rename = "give it another name"
	gated := slices.ContainsFunc(containers.Authors(in.pod), podspec.NeedsAgent)
	has := map[string]corev1.Volume{}
	all := slices.Clone(in.pod.Spec.Volumes)
	for _, name := range in.o.Claims {
		all = append(all, corev1.Volume{Name: name})
	}
	for _, v := range all {
		has[v.Name] = v
		ofGate := gated && slices.Contains(podspec.Volumes, v.Name)
		if slices.Contains(ourVolumes, v.Name) && !ofGate {
			return nil, nil, verdict.Refuse(verdict.VolumeConflict, rename, "the pod has its own volume %s, and injection adds one of that name", v.Name)
		}
	}
	if !s.proxy {
		return nil, nil, nil
	}
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	var err error
	if text, ok := in.pod.Annotations[settings.VolumeKey]; ok {
		if volumes, err = settings.UserVolumes(text); err != nil {
			return nil, nil, err // unreachable: CheckAnnotations has parsed the same text
		}
	}
	if text, ok := in.pod.Annotations[settings.MountKey]; ok {
		if mounts, err = settings.UserMounts(text); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range volumes {
		old, there := has[v.Name]
		switch {
		case slices.Contains(ourVolumes, v.Name):
			return nil, nil, verdict.Refuse(verdict.VolumeConflict, rename, "annotation %s: injection adds a volume %s itself", settings.VolumeKey, v.Name)
		case there && !equality.Semantic.DeepEqual(old, v):
			return nil, nil, verdict.Refuse(verdict.VolumeConflict, rename, "annotation %s: the pod has another volume %s", settings.VolumeKey, v.Name)
		}
		has[v.Name] = v
	}
	return volumes, mounts, checkMounts(mounts, has)
}

// checkMounts refuses mounts of volumes that are not in the map has, mounts that overlap our directories, and
// two mounts at the same path.
func checkMounts(mounts []corev1.VolumeMount, has map[string]corev1.Volume) error {
	mounted := map[string]bool{}
	for _, m := range mounts {
		if _, there := has[m.Name]; !there {
			return verdict.Refuse(verdict.InvalidAnnotation, "add it to annotation "+settings.VolumeKey, "annotation %s: there is no volume %s", settings.MountKey, m.Name)
		}
		over := func(dir string) bool { return contract.Overlap(dir, m.MountPath) }
		if slices.ContainsFunc(ourDirs, over) || mounted[m.MountPath] {
			return verdict.Refuse(verdict.MountConflict, "mount it somewhere else", "annotation %s: something else is mounted at %s already", settings.MountKey, m.MountPath)
		}
		mounted[m.MountPath] = true
	}
	return nil
}

// taken turns an error from writing gates into a refusal. The cause is a name or a directory that the pod already
// uses, an order that is too large, or an invalid graph.
func taken(err error) error {
	var t *podspec.TakenError
	var large *validation.SizeError
	switch {
	case errors.As(err, &large):
		return order.TooLarge(err)
	case !errors.As(err, &t):
		return verdict.Refuse(verdict.InvalidGraph, "", "%v", err)
	case t.Container == "":
		return verdict.Refuse(verdict.VolumeConflict, "give it another name", "%v", t)
	}
	return verdict.Refuse(verdict.MountConflict, "mount it somewhere else", "%v", t)
}

func (in input) proxyMounts(s effective) []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: contract.WorkVolume, MountPath: contract.WorkDir},
		{Name: contract.PodInfoVolume, MountPath: contract.PodInfoDir, ReadOnly: true},
		{Name: contract.TokenVolume, MountPath: contract.TokenDir, ReadOnly: true},
		{Name: contract.RootVolume, MountPath: contract.RootDir, ReadOnly: true},
	}
	if in.pod.Annotations[settings.BootstrapKey] != "" {
		out = append(out, corev1.VolumeMount{Name: contract.BootstrapVolume, MountPath: contract.BootstrapDir, ReadOnly: true})
	}
	return append(out, s.mounts...)
}

// roots returns the volume source of the mesh's root certificates. A ClusterTrustBundle is available in a new
// namespace at once, the ConfigMap soon after.
func (in input) roots() corev1.VolumeSource {
	// The bundle is selected by its signer, not by its name. If a bundle with a signer is mounted by name,
	// the kubelet keeps its old content for five minutes (dropCacheFor in
	// k8s.io/kubernetes/pkg/kubelet/clustertrustbundle; seen on 1.34.4).
	if signer := in.o.TrustSigner; signer != "" {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}, Path: contract.RootKey}}}}}
	}
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: cmp.Or(in.o.RootCA, contract.RootConfigMap)}}}
}

// proxyVolumes returns the volumes to add for the proxy. The author's volumes are left out if the pod already has
// them.
func (in input) proxyVolumes(s effective) []corev1.Volume {
	field := func(path, name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: name}}
	}
	configMap := func(name string) *corev1.ConfigMapVolumeSource {
		return &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	out := []corev1.Volume{
		{Name: contract.WorkVolume, VolumeSource: podspec.Memory(workLimit)},
		{Name: contract.PodInfoVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			field("labels", "metadata.labels"), field("annotations", "metadata.annotations")}}}},
		{Name: contract.TokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: tokenAudience, ExpirationSeconds: new(int64(tokenSeconds)), Path: path.Base(contract.TokenFile)}}}}}},
		{Name: contract.RootVolume, VolumeSource: in.roots()},
	}
	if name := in.pod.Annotations[settings.BootstrapKey]; name != "" {
		out = append(out, corev1.Volume{Name: contract.BootstrapVolume, VolumeSource: corev1.VolumeSource{ConfigMap: configMap(name)}})
	}
	had := map[string]bool{}
	for _, v := range in.pod.Spec.Volumes {
		had[v.Name] = true
	}
	for _, v := range s.volumes {
		if !had[v.Name] {
			out = append(out, v)
		}
	}
	return out
}
