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

// ServedOutside returns the volume in which a unix socket lies that a container calls, if another pod or the node serves it:
// no other container has mounted that volume, and it is none that begins empty or has files of the API server.
func (p *Pod) ServedOutside(container, socket string) (volume string, is bool) {
	most, all := 0, slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers)
	for _, spec := range all {
		for _, v := range spec.VolumeMounts {
			if spec.Name == container && within(socket, v.MountPath) && len(v.MountPath) > most {
				volume, most = v.Name, len(v.MountPath)
			}
		}
	}
	shared := slices.ContainsFunc(all, func(spec corev1.Container) bool {
		return spec.Name != container && slices.ContainsFunc(spec.VolumeMounts, func(v corev1.VolumeMount) bool { return v.Name == volume })
	})
	own := slices.ContainsFunc(p.Object.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == volume && v.HostPath == nil && v.CSI == nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil
	})
	return volume, volume != "" && !shared && !own
}

// within reports whether a file is in a folder, or is the folder itself.
func within(file, folder string) bool {
	folder = path.Clean(folder)
	return folder != "/" && (path.Clean(file) == folder || strings.HasPrefix(path.Clean(file), folder+"/"))
}
