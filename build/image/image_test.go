package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/build/image"
)

func TestImage(t *testing.T) {
	source := t.TempDir()
	for name, content := range map[string]string{"tool": "#!/bin/sh\n", "etc/a": "1", "etc/sub/b": "2"} {
		file := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	img := image.Image{
		Name:       "test.outrider.dev/tool:1",
		Files:      map[string]string{"/opt/tool": filepath.Join(source, "tool"), "/etc/tool": filepath.Join(source, "etc")},
		Links:      map[string]string{"/bin/tool": "../opt/tool"},
		Entrypoint: []string{"/bin/tool"},
		User:       "1337",
	}
	layout := write(t, img)

	t.Run("the same input gives the same bytes", func(t *testing.T) {
		if !bytes.Equal(layout, write(t, img)) {
			t.Error("two images differ")
		}
	})

	blobs := untar(t, layout)
	t.Run("every blob has the digest that it is named by", func(t *testing.T) {
		for name, content := range blobs {
			want, ok := strings.CutPrefix(name, "blobs/sha256/")
			if sum := sha256.Sum256(content); ok && want != "" && hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s has digest %x", name, sum)
			}
		}
	})

	t.Run("the layer holds directories, files and links", func(t *testing.T) {
		layer := untar(t, blobs[find(t, blobs, "layers")])
		for name, want := range map[string]string{
			"opt/tool":       "#!/bin/sh\n",
			"etc/tool/a":     "1",
			"etc/tool/sub/b": "2",
			"bin/tool":       "-> ../opt/tool",
			"tmp/":           "",
		} {
			if got, ok := layer[name]; !ok || string(got) != want {
				t.Errorf("%s is %q (there: %v), want %q", name, got, ok, want)
			}
		}
	})

	t.Run("the configuration names entry point and user", func(t *testing.T) {
		got := string(blobs[find(t, blobs, "config")])
		for _, want := range []string{`"Entrypoint":["/bin/tool"]`, `"User":"1337"`} {
			if !strings.Contains(got, want) {
				t.Errorf("configuration lacks %s: %s", want, got)
			}
		}
	})
}

func TestImageOfDynamicProgramHasItsLoader(t *testing.T) {
	const program = "/bin/ls"
	if _, err := os.Stat(program); err != nil {
		t.Skip(err)
	}
	blobs := untar(t, write(t, image.Image{Name: "test.outrider.dev/ls:1", Files: map[string]string{program: program}}))
	layer := untar(t, blobs[find(t, blobs, "layers")])
	libc := false
	for name := range layer {
		libc = libc || strings.HasSuffix(name, "/libc.so.6")
	}
	if !libc {
		t.Errorf("the layer lacks the C library that %s needs", program)
	}
}

func TestImageThatCannotBeReadLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	img := image.Image{Name: "test.outrider.dev/none:1", Files: map[string]string{"/x": filepath.Join(dir, "absent")}}
	if err := img.WriteFile(filepath.Join(dir, "none.tar")); err == nil {
		t.Error("WriteFile found a file that is not there")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func write(t *testing.T, img image.Image) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := img.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// find returns the path of the blob that the manifest names as part.
func find(t *testing.T, blobs map[string][]byte, part string) string {
	t.Helper()
	type ref struct{ Digest string }
	var index struct{ Manifests []ref }
	var manifest struct {
		Config ref
		Layers []ref
	}
	path := func(r ref) string { return "blobs/" + strings.Replace(r.Digest, ":", "/", 1) }
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(blobs[path(index.Manifests[0])], &manifest); err != nil {
		t.Fatal(err)
	}
	if part == "layers" {
		return path(manifest.Layers[0])
	}
	return path(manifest.Config)
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Linkname != "" {
			text = []byte("-> " + h.Linkname)
		}
		files[h.Name] = text
	}
}
