package localpod

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// A volume is a volume of the pod with its initial content.
type volume struct {
	name   string
	files  []containerinit.File
	size   int64 // largest size of an emptyDir; 0: unlimited
	shared bool  // a directory of this machine: nothing is created
}

// volumes returns the pod's volumes, or an error for each that is not supported here.
func (f facts) volumes() ([]volume, error) {
	var out []volume
	var all []error
	for i, v := range f.Pod.Spec.Volumes {
		got, err := f.volume(fmt.Sprintf("spec.volumes[%d]", i), v)
		got.name = v.Name
		out, all = append(out, got), append(all, err)
	}
	return out, errors.Join(all...)
}

func (f facts) volume(field string, v corev1.Volume) (volume, error) {
	if wrong := validation.IsDNS1123Label(v.Name); wrong != nil {
		return volume{}, refuse(field+".name", "%q cannot be the name of a volume", v.Name).but("want small letters, digits and '-', at most 63")
	}
	const mode = 0o644 // default mode of files in a volume
	switch {
	case v.EmptyDir != nil:
		if v.EmptyDir.SizeLimit != nil {
			return volume{size: v.EmptyDir.SizeLimit.Value()}, nil
		}
		return volume{}, nil
	case v.ConfigMap != nil:
		s := v.ConfigMap
		files, err := f.configMapFiles(field+".configMap", &corev1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}, or(s.DefaultMode, mode))
		return volume{files: files}, err
	case v.Secret != nil:
		s := v.Secret
		files, err := f.secretFiles(field+".secret", &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: s.SecretName}, Items: s.Items, Optional: s.Optional}, or(s.DefaultMode, mode))
		return volume{files: files}, err
	case v.DownwardAPI != nil:
		files, err := f.downwardFiles(field+".downwardAPI", v.DownwardAPI.Items, or(v.DownwardAPI.DefaultMode, mode))
		return volume{files: files}, err
	case v.Projected != nil:
		files, err := f.projected(field+".projected", v.Projected, or(v.Projected.DefaultMode, mode))
		return volume{files: files}, err
	case v.HostPath != nil:
		return volume{shared: true}, f.checkHostPath(field+".hostPath", v.HostPath)
	}
	return volume{}, refuse(field, "volume %s is of a kind that is not done here", v.Name).
		but("those that are: emptyDir, configMap, secret, projected, downwardAPI, hostPath; an emptyDir may stand in")
}

func or(mode *int32, otherwise uint32) uint32 {
	if mode == nil {
		return otherwise
	}
	return uint32(*mode)
}

func (f facts) checkHostPath(field string, h *corev1.HostPathVolumeSource) error {
	if !f.AllowHostPath {
		return refuse(field, "%s is this machine's own, not a copy", h.Path).but("allow it with --allow-host-path, or make it an emptyDir")
	}
	if _, err := os.Stat(h.Path); err != nil {
		return refuse(field+".path", "%v", err).but("make it first")
	}
	if real := realPath(h.Path); real == containerinit.NodeDir || strings.HasPrefix(real, containerinit.NodeDir+"/") {
		return refuse(field+".path", "%s cannot be shown", h.Path).but("a privileged container has a /sys of its own")
	}
	return nil
}

// realPath resolves the links in a path. Otherwise a link to an absolute path would be followed within the
// container.
func realPath(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

// pick returns the files for the keys that the items name, or for all keys of data if there are no items.
func pick(field string, data map[string][]byte, items []corev1.KeyToPath, mode uint32, optional *bool) ([]containerinit.File, error) {
	var out []containerinit.File
	if len(items) == 0 {
		for _, name := range slices.Sorted(maps.Keys(data)) {
			if wrong := validation.IsConfigMapKey(name); wrong != nil {
				return nil, refuse(field, "%q cannot be a key", name).but("want letters, digits, '-', '_' and '.'")
			}
			out = append(out, containerinit.File{Path: name, Data: data[name], Mode: mode})
		}
		return out, nil
	}
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", field, i)
		content, ok := data[item.Key]
		if !ok && optional != nil && *optional {
			continue
		}
		if !ok {
			return nil, refuse(at+".key", "no key %q", item.Key).but("keys here are %s", known(data))
		}
		if !filepath.IsLocal(item.Path) {
			return nil, refuse(at+".path", "%q leads out of the volume", item.Path)
		}
		out = append(out, containerinit.File{Path: item.Path, Data: content, Mode: or(item.Mode, mode)})
	}
	return out, nil
}

func (f facts) configMapFiles(field string, s *corev1.ConfigMapProjection, mode uint32) ([]containerinit.File, error) {
	m, err := f.configMap(field+".name", s.Name, s.Optional)
	if err != nil {
		return nil, err
	}
	data := maps.Clone(m.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, v := range m.Data {
		data[k] = []byte(v)
	}
	return pick(field, data, s.Items, mode, s.Optional)
}

func (f facts) secretFiles(field string, s *corev1.SecretProjection, mode uint32) ([]containerinit.File, error) {
	found, err := f.secret(field+".name", s.Name, s.Optional)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for k, v := range texts(found) {
		data[k] = []byte(v)
	}
	return pick(field, data, s.Items, mode, s.Optional)
}

func (f facts) downwardFiles(field string, items []corev1.DownwardAPIVolumeFile, mode uint32) ([]containerinit.File, error) {
	var out []containerinit.File
	for i, item := range items {
		at := fmt.Sprintf("%s.items[%d]", field, i)
		var value string
		var err error
		switch {
		case !filepath.IsLocal(item.Path):
			err = refuse(at+".path", "%q leads out of the volume", item.Path)
		case item.FieldRef != nil:
			value, err = f.field(at+".fieldRef.fieldPath", item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil && item.ResourceFieldRef.ContainerName == "":
			err = refuse(at+".resourceFieldRef.containerName", "missing")
		case item.ResourceFieldRef != nil:
			value, err = f.resource(at+".resourceFieldRef", carrier{}, item.ResourceFieldRef)
		default:
			err = refuse(at, "is empty").but("want fieldRef or resourceFieldRef")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, containerinit.File{Path: item.Path, Data: []byte(value), Mode: or(item.Mode, mode)})
	}
	return out, nil
}

func (f facts) projected(field string, p *corev1.ProjectedVolumeSource, mode uint32) ([]containerinit.File, error) {
	var out []containerinit.File
	for i, s := range p.Sources {
		at := fmt.Sprintf("%s.sources[%d]", field, i)
		var files []containerinit.File
		var err error
		switch {
		case s.ConfigMap != nil:
			files, err = f.configMapFiles(at+".configMap", s.ConfigMap, mode)
		case s.Secret != nil:
			files, err = f.secretFiles(at+".secret", s.Secret, mode)
		case s.DownwardAPI != nil:
			files, err = f.downwardFiles(at+".downwardAPI", s.DownwardAPI.Items, mode)
		case s.ServiceAccountToken != nil:
			files, err = f.token(at+".serviceAccountToken", s.ServiceAccountToken, mode)
		default:
			err = refuse(at, "a source that is not done here").but("those that are: configMap, secret, downwardAPI, serviceAccountToken")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

func (f facts) token(field string, s *corev1.ServiceAccountTokenProjection, mode uint32) ([]containerinit.File, error) {
	if f.Token == nil {
		return nil, refuse(field, "there is no API server here to make one").but("give one with --token FILE")
	}
	if !filepath.IsLocal(s.Path) {
		return nil, refuse(field+".path", "%q leads out of the volume", s.Path)
	}
	data, err := f.Token(s.Audience)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return []containerinit.File{{Path: s.Path, Data: data, Mode: mode}}, nil
}

// write writes the files of a volume into dir, a directory of the node that is given by its path on this machine.
// If the pod has an fsGroup, the files belong to that group. Source: pkg/volume/volume_linux.go
// SetVolumeOwnership of kubernetes v1.34.4.
func (v volume) write(dir string, fsGroup *int64) error {
	root, err := os.OpenRoot(dir) // no file name can lead out of it
	if err != nil {
		return err
	}
	defer root.Close()
	mode := os.FileMode(0o777)
	if fsGroup != nil {
		mode |= os.ModeSetgid
	}
	for _, f := range v.files {
		if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(f.Path, f.Data, 0o600); err != nil {
			return err
		}
		own := os.FileMode(f.Mode)
		if fsGroup != nil {
			own |= 0o440
			if err := root.Chown(f.Path, -1, int(*fsGroup)); err != nil {
				return err
			}
		}
		if err := root.Chmod(f.Path, own); err != nil {
			return err
		}
	}
	if fsGroup != nil {
		if err := root.Chown(".", -1, int(*fsGroup)); err != nil {
			return err
		}
	}
	return root.Chmod(".", mode)
}
