// Package image writes OCI images from local files, without a container engine and without
// a registry.
//
// An image has one layer. The same content always gives the same bytes: entries are sorted,
// and times are zero. The layer of a dynamically linked program includes its loader and its
// libraries.
package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// An Image describes an image.
type Image struct {
	Name       string            // with registry and tag: "test.outrider.dev/base:1"
	Files      map[string]string // path in the image → local file or directory
	Links      map[string]string // path in the image → target of a symbolic link
	Entrypoint []string
	User       string // default root
}

// WriteFile writes the image to a tarball, for `ctr images import` and the like. After an
// error there is no file.
func (img Image) WriteFile(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(img.Write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("writing image %s: %w", img.Name, err)
	}
	return os.Rename(f.Name(), path)
}

// Write writes the image as a tarball that holds an OCI layout.
func (img Image) Write(w io.Writer) error {
	// The layer's digest comes before the layer, which may be too large for memory.
	file, err := os.CreateTemp("", "layer.*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	layer, err := img.writeLayer(file)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	config, configText := blob(v1.MediaTypeImageConfig, img.config(layer))
	manifest, manifestText := blob(v1.MediaTypeImageManifest, manifestOf(config, layer))
	manifest.Annotations = map[string]string{"io.containerd.image.name": img.Name}
	_, indexText := blob(v1.MediaTypeImageIndex, indexOf(manifest))

	t := newTarball(w)
	t.text(v1.ImageLayoutFile, `{"imageLayoutVersion":"1.0.0"}`)
	t.text(v1.ImageIndexFile, indexText)
	t.text(pathOf(config), configText)
	t.text(pathOf(manifest), manifestText)
	t.copy(pathOf(layer), 0o644, file, layer.Size)
	return t.close()
}
