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

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
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
		var out bytes.Buffer
		img := Image{Name: name, Files: map[string]string{file: source}, Links: map[string]string{link: target}, Entrypoint: []string{file}, User: user}
		if err := img.Write(&out); err != nil {
			return
		}
		layout := entries(t, out.Bytes())
		var index v1.Index
		var manifest v1.Manifest
		var config v1.Image
		read := func(name string, into any) {
			t.Helper()
			if err := json.Unmarshal(layout[name], into); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		read(v1.ImageIndexFile, &index)
		read(pathOf(index.Manifests[0]), &manifest)
		read(pathOf(manifest.Config), &config)
		layer := layout[pathOf(manifest.Layers[0])]
		if int64(len(layer)) != manifest.Layers[0].Size || manifest.Layers[0].Digest.Algorithm().FromBytes(layer) != config.RootFS.DiffIDs[0] {
			t.Error("the layer is not the one that is described")
		}
		for name := range maps.Keys(entries(t, layer)) {
			if !filepath.IsLocal(name) {
				t.Errorf("the layer has %q", name)
			}
		}
	})
}

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
