// Package image writes OCI images from files of this machine, without a container
// engine and without a registry.
//
// An image has one layer. The same content always gives the same bytes: entries
// are sorted, and times are zero. A dynamically linked program brings its loader
// and its libraries with it.
package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// An Image says what a container finds.
type Image struct {
	Name       string            // with registry and tag: "test.outrider.dev/base:1"
	Files      map[string]string // path in the image → file or directory on this machine
	Links      map[string]string // path in the image → target of a symbolic link
	Entrypoint []string
	User       string // default root
}

// WriteFile writes the image to a tarball, for `ctr images import` and the like.
// The file is complete or not there.
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
	// The digest of the layer comes before the layer, and it may be large.
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
	config := newBlob("config.v1+json", img.config(layer))
	manifest := newBlob("manifest.v1+json", newManifest(config.descriptor, layer))
	manifest.Annotations = map[string]string{"io.containerd.image.name": img.Name}

	t := newTarball(w)
	t.text("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)
	t.text("index.json", string(newBlob("index.v1+json", newIndex(manifest.descriptor)).content))
	t.text(config.path(), string(config.content))
	t.text(manifest.path(), string(manifest.content))
	t.copy(layer.path(), 0o644, file, layer.Size)
	return t.close()
}
