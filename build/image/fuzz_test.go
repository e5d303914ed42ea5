package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// FuzzImage: an image of any names can be read back: its index leads to its manifest, that to
// its configuration and layer, and the layer has the file, within the root.
func FuzzImage(f *testing.F) {
	f.Add("test.outrider.dev/a:1", "/usr/bin/a", "/bin/a", "../usr/bin/a", "1337", []byte("#!/bin/sh\n"))
	f.Add("", "../../etc/passwd", "a/../../b", "/", "", []byte("\x7fELF\x02\x01\x01"))
	f.Add("a\x00b", "/etc//passwd/", "/"+strings.Repeat("n/", 200), strings.Repeat("l", 300), "\xff", []byte{})
	source := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, name, file, link, target, user string, content []byte) {
		if err := os.WriteFile(source, content, 0o755); err != nil {
			t.Fatal(err)
		}
		img := Image{Name: name, Files: map[string]string{file: source}, Links: map[string]string{link: target}, Entrypoint: []string{file}, User: user}
		tarball := filepath.Join(t.TempDir(), "image.tar")
		if err := img.WriteFile(tarball); err != nil {
			return
		}
		raw, err := os.ReadFile(tarball)
		if err != nil {
			t.Fatal(err)
		}
		layout := entries(t, raw)
		var index v1.IndexManifest
		var manifest v1.Manifest
		var config v1.ConfigFile
		read := func(name string, into any) {
			t.Helper()
			if err := json.Unmarshal(layout[name], into); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		read("index.json", &index)
		read(pathOf(index.Manifests[0]), &manifest)
		read(pathOf(manifest.Config), &config)
		layer := layout[pathOf(manifest.Layers[0])]
		if sum, size, _ := v1.SHA256(bytes.NewReader(layer)); size != manifest.Layers[0].Size || sum != config.RootFS.DiffIDs[0] {
			t.Error("the layer is not the one that is described")
		}
		for name := range maps.Keys(entries(t, layer)) {
			if !filepath.IsLocal(name) {
				t.Errorf("the layer has %q", name)
			}
		}
	})
}

// pathOf is where the described content lies in a layout.
func pathOf(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }

// entries reads a tarball.
func entries(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err == nil {
			out[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
