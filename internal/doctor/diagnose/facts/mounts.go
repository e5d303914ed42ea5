package facts

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Mount is a volume that another container has mounted where a variable of a container names a file, and which that
// container has not.
type Mount struct{ Variable, File, Volume, By, At string }

var absolute = regexp.MustCompile(`^(?:unix:(?://)?)?(/[^\s;,?&'"()]+)$`)

// NotMounted returns a volume that a container needs by its environment, and false if there is none: no variable of it
// names a file in a folder that only another container mounts. Values of references are not known.
func (p *Pod) NotMounted(spec *corev1.Container) (Mount, bool) {
	for _, e := range spec.Env {
		m := absolute.FindStringSubmatch(e.Value)
		if m == nil || slices.ContainsFunc(spec.VolumeMounts, func(v corev1.VolumeMount) bool { return within(m[1], v.MountPath) }) {
			continue
		}
		for _, other := range p.Object.Spec.Containers {
			for _, v := range other.VolumeMounts {
				if other.Name != spec.Name && within(m[1], v.MountPath) {
					return Mount{e.Name, m[1], v.Name, other.Name, v.MountPath}, true
				}
			}
		}
	}
	return Mount{}, false
}

// within reports whether a file is in a folder, or is the folder itself.
func within(file, folder string) bool {
	folder = path.Clean(folder)
	return folder != "/" && (path.Clean(file) == folder || strings.HasPrefix(path.Clean(file), folder+"/"))
}
