// Package image writes OCI images from local files, without a container engine: as tarballs, or as OCI layouts in
// folders.
//
// An image has one layer. The same content always gives the same bytes, because entries are sorted and times are
// zero. If a program is linked dynamically, the layer also contains its loader and its libraries.
package image

import (
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An Image describes an image of one architecture.
type Image struct {
	Name       string            // including registry and tag: "test.outrider.dev/base:1"
	Files      map[string]string // path in the image → local file or directory
	Links      map[string]string // path in the image → target of a symbolic link
	Entrypoint []string
	User       string // default root

	Arch    string            // as in GOARCH; default: this machine's
	Root    string            // folder with the file system from which libraries are taken; default: "/"
	Created time.Time         // creation time; must be fixed, so that the bytes are always the same; default: none
	Labels  map[string]string // in addition to the label with the name
}

// machines lists the architectures for which a layer can collect libraries.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func (img Image) architecture() string {
	if img.Arch == "" {
		return runtime.GOARCH
	}
	return img.Arch
}

// WriteFile writes the image to a tarball, for `docker load`, `ctr images import` and similar commands. If
// it fails, it leaves no file.
func (img Image) WriteFile(path string) error {
	tag, err := name.NewTag(img.Name)
	if err != nil {
		return err
	}
	// Do not compress: only this machine reads the tarball, and it reads an uncompressed one faster.
	built, err := img.build(gzip.NoCompression)
	if err == nil {
		err = tarball.WriteToFile(path, tag, built)
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("image %s: %w", img.Name, err)
	}
	return nil
}

// nameAnnotation is the annotation of an OCI layout from which importers, such as ctr, read the image's name.
const nameAnnotation = "io.containerd.image.name"

// WriteLayout writes images with the same name, one for each architecture, to a folder as an OCI layout, and
// returns the digest of their index. It replaces the content of the folder, which must be empty or an OCI layout.
func WriteLayout(dir string, images ...Image) (digest string, err error) {
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		if _, err := layout.FromPath(dir); err != nil {
			return "", fmt.Errorf("%s is neither empty nor an OCI layout", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		built, err := img.build(gzip.DefaultCompression)
		if err != nil {
			return "", fmt.Errorf("image %s for %s: %w", img.Name, img.architecture(), err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: img.architecture()},
		}})
	}
	path, err := layout.Write(filepath.Clean(dir), empty.Index)
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{nameAnnotation: images[0].Name})); err != nil {
		return "", err
	}
	sum, err := index.Digest()
	return sum.String(), err
}

// build returns the image. It does not read the files; they are read each time the layer is written.
func (img Image) build(compression int) (v1.Image, error) {
	files, err := img.resolve()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(img.writeLayer(w, files)) }()
		return r, nil
	}, tarball.WithCompressionLevel(compression), tarball.WithMediaType(types.OCILayer))
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
	config.Architecture, config.OS = img.architecture(), "linux"
	config.Created = v1.Time{Time: img.Created}
	config.History = nil
	config.Config = v1.Config{
		User:       img.User,
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: img.Entrypoint,
		// The label makes the content of each image unique: if two images with different names have the same
		// content, containerd 1.6 treats them as one and later loses one of the names.
		Labels: map[string]string{"dev.outrider.name": img.Name},
	}
	maps.Copy(config.Config.Labels, img.Labels)
	return mutate.ConfigFile(layered, config)
}
