// Package image writes OCI images from local files, without a container engine: as tarballs, as
// layouts in folders, or into registries.
//
// An image has one layer. The same content always gives the same bytes: entries are sorted,
// and times are zero. The layer of a dynamically linked program includes its loader and its
// libraries.
package image

import (
	"debug/elf"
	"maps"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An Image describes an image of one architecture.
type Image struct {
	Name       string            // with registry and tag: "test.outrider.dev/base:1"
	Files      map[string]string // path in the image → local file or directory
	Links      map[string]string // path in the image → target of a symbolic link
	Entrypoint []string
	User       string // default root

	Arch     string            // as GOARCH; default: this machine's
	Root     string            // folder in which libraries are found; default: "/"
	Created  time.Time         // fixed, so that the bytes are; default: none
	Labels   map[string]string // in addition to the name's
	Compress bool              // the layer, for a registry; a local tarball is quicker without
}

// machines are the architectures for which a layer can collect libraries.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Architecture is Arch, or its default.
func (img Image) Architecture() string {
	if img.Arch == "" {
		return runtime.GOARCH
	}
	return img.Arch
}

// WriteFile writes the image to a tarball, for `ctr images import` and the like. After an
// error there is no file.
func (img Image) WriteFile(path string) error {
	return WriteTarball(path, img)
}

// build writes the layer to a folder, and returns the image that reads it there.
func (img Image) build(dir string) (v1.Image, error) {
	layer, err := img.writeLayer(dir)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	layered, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := layered.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = img.Architecture(), "linux"
	config.Created = v1.Time{Time: img.Created}
	config.History = nil
	config.Config = v1.Config{
		User:       img.User,
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: img.Entrypoint,
		// containerd 1.6 takes two names of the same content for one image, and then
		// loses one of them. The label makes the content differ.
		Labels: map[string]string{"dev.outrider.name": img.Name},
	}
	maps.Copy(config.Config.Labels, img.Labels)
	return mutate.ConfigFile(layered, config)
}
