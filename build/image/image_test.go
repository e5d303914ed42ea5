package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"outrider.dev/build/image"
)

// tool returns an image with a file and a folder of files, from a temporary folder.
func tool(t *testing.T) image.Image {
	t.Helper()
	source := t.TempDir()
	for name, content := range map[string]string{"tool": "#!/bin/sh\n", "etc/a": "1", "etc/sub/b": "2"} {
		file := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return image.Image{
		Name:       "test.outrider.dev/tool:1",
		Files:      map[string]string{"/opt/tool": filepath.Join(source, "tool"), "/etc/tool": filepath.Join(source, "etc")},
		Links:      map[string]string{"/bin/tool": "../opt/tool"},
		Entrypoint: []string{"/bin/tool"},
		User:       "1337",
	}
}

// files maps the path of each file in an image to its content, and the path of each link to its target.
func files(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(mutate.Extract(img)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		text, e := io.ReadAll(r)
		if err = errors.Join(err, e); err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text) + h.Linkname
	}
}

func TestTarball(t *testing.T) {
	img, file := tool(t), filepath.Join(t.TempDir(), "image.tar")
	if err := img.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	got, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	has := files(t, got)
	for name, want := range map[string]string{
		"opt/tool": "#!/bin/sh\n", "etc/tool/a": "1", "etc/tool/sub/b": "2", "bin/tool": "../opt/tool", "tmp": "",
	} {
		if text, ok := has[name]; !ok || text != want {
			t.Errorf("%s is %q (there: %t), want %q", name, text, ok, want)
		}
	}
	config, err := got.ConfigFile()
	if err != nil || config.Config.User != "1337" || config.Config.Entrypoint[0] != "/bin/tool" || config.Architecture != runtime.GOARCH {
		t.Errorf("configuration %+v, %v", config, err)
	}
}

// The layout contains one index with the image of each architecture, and writing it again gives the same index.
func TestLayout(t *testing.T) {
	one := tool(t)
	other := one
	one.Arch, other.Arch = "amd64", "arm64"
	dir := filepath.Join(t.TempDir(), "layout")
	first, err := image.WriteLayout(dir, one, other)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := image.WriteLayout(dir, one, other); err != nil || again != first {
		t.Errorf("made again it is %s, %v; want %s", again, err, first)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].Digest.String() != first || list.Manifests[0].Annotations["io.containerd.image.name"] != one.Name {
		t.Fatalf("%+v, %v", list, err)
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	both, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	archs := map[string]string{}
	for _, d := range both.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		archs[d.Platform.Architecture] = files(t, img)["etc/tool/a"]
	}
	if diff := cmp.Diff(map[string]string{"amd64": "1", "arm64": "1"}, archs); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := image.WriteLayout(dir, one); err == nil {
		t.Error("a folder of something else is replaced")
	}
}

// Libraries come from Root, not from this machine, and their architecture must match the image's.
func TestLibraries(t *testing.T) {
	const program = "/bin/ls"
	if _, err := os.Stat(program); err != nil {
		t.Skip(err)
	}
	img, file := image.Image{Name: "test.outrider.dev/ls:1", Root: t.TempDir(), Files: map[string]string{program: program}}, filepath.Join(t.TempDir(), "a.tar")
	if err := img.WriteFile(file); err == nil || !strings.Contains(err.Error(), img.Root) {
		t.Errorf("libraries that the root does not have: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("an image that cannot be made leaves a file")
	}
	img.Root = "/"
	for _, arch := range []string{"amd64", "arm64"} {
		img.Arch = arch
		if err := img.WriteFile(file); arch == runtime.GOARCH != (err == nil) {
			t.Errorf("%s: %v", arch, err)
		} else if err != nil {
			continue
		}
		got, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		libc := false
		for name := range files(t, got) { // any order: one name is searched for
			libc = libc || strings.HasSuffix(name, "/libc.so.6")
		}
		if !libc {
			t.Error("the image lacks the C library that the program needs")
		}
	}
}

// A path that leads out of the image, such as /../../etc, is an error.
func TestPathsStayInside(t *testing.T) {
	img := tool(t)
	img.Links = map[string]string{"/../../etc/passwd": "x"}
	if err := img.WriteFile(filepath.Join(t.TempDir(), "a.tar")); err == nil || !strings.Contains(err.Error(), "must not lead out") {
		t.Errorf("%v", err)
	}
}
