package image_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"outrider.dev/build/image"
)

// both are images of one name, for two architectures.
func both(t *testing.T, name string) []image.Image {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	img := image.Image{
		Name: name, Files: map[string]string{"/opt/tool": tool}, Entrypoint: []string{"/opt/tool"}, Compress: true,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Labels: map[string]string{"org.opencontainers.image.version": "1.2.3"},
	}
	amd64, arm64 := img, img
	amd64.Arch, arm64.Arch = "amd64", "arm64"
	return []image.Image{amd64, arm64}
}

// checkIndex holds an index to the specification, and to what its images were made of.
func checkIndex(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		platforms = append(platforms, d.Platform.String())
		if config.Platform().String() != d.Platform.String() || config.Created.Format(time.RFC3339) != "2026-01-02T03:04:05Z" || config.Config.Labels["org.opencontainers.image.version"] != "1.2.3" {
			t.Errorf("%s has the configuration %+v", d.Platform, config)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the index has %v, want %v", platforms, want)
	}
}

func TestLayout(t *testing.T) {
	images := both(t, "test.outrider.dev/tool:1")
	dir := filepath.Join(t.TempDir(), "layouts", "tool")
	var digests []string
	for range 2 { // the second replaces the first
		digest, err := image.WriteLayout(dir, images...)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	names, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	d := names.Manifests[0]
	if len(names.Manifests) != 1 || d.Annotations["io.containerd.image.name"] != images[0].Name || d.Digest.String() != digests[0] || digests[0] != digests[1] {
		t.Errorf("the layout has %+v, and the digests are %v", names.Manifests, digests)
	}
	index, err := top.ImageIndex(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, index)
}

func TestLayoutLeavesOtherFoldersAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.WriteLayout(dir, both(t, "test.outrider.dev/tool:1")...); err == nil || !strings.Contains(err.Error(), "neither empty nor an OCI layout") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Error(err)
	}
}

func TestTarballOfTwoArchitecturesIsTheSameTwice(t *testing.T) {
	images := both(t, "test.outrider.dev/tool:1")
	var files [][]byte
	for _, file := range []string{"a.tar", "b.tar"} {
		file = filepath.Join(t.TempDir(), file)
		if err := image.WriteTarball(file, images...); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, text)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the tarballs differ")
	}
	blobs := 0
	for file := range untar(t, files[0]) {
		if strings.HasPrefix(file, "blobs/sha256/") && !strings.HasSuffix(file, "/") {
			blobs++
		}
	}
	if blobs != 1+2*2+1 { // the index, manifests and configurations, and the one layer of both
		t.Errorf("the layout has %d blobs", blobs)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	images := both(t, strings.TrimPrefix(server.URL, "http://")+"/team/tool:1")
	digest, err := image.Push(t.Context(), time.Minute, images...)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(images[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if pulled, err := index.Digest(); err != nil || pulled.String() != digest {
		t.Errorf("pushed %s, and pulled %s, %v", digest, pulled, err)
	}
	checkIndex(t, index)
	if again, err := image.Push(t.Context(), time.Minute, images...); err != nil || again != digest {
		t.Errorf("the second push is %s, %v, want %s", again, err, digest)
	}
}

func TestPushThatFailsNamesTheReason(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		timeout time.Duration
		want    string
	}{
		"a registry without room": {func(w http.ResponseWriter, req *http.Request) {
			switch {
			case req.URL.Path == "/v2/":
				return
			case req.Method == http.MethodHead:
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"errors":[{"code":"DENIED","message":"quota exceeded"}]}`)
		}, time.Minute, "quota exceeded"},
		"a registry that requires a login": {func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="tool"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, time.Minute, "401 Unauthorized"},
		"a registry that does not answer": {func(_ http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
		}, 200 * time.Millisecond, "did not take it within 200ms"},
	}
	for testName, tt := range tests {
		t.Run(testName, func(t *testing.T) {
			server := httptest.NewServer(tt.handler)
			defer server.Close()
			images := both(t, strings.TrimPrefix(server.URL, "http://")+"/team/tool:1")
			_, err := image.Push(t.Context(), tt.timeout, images...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), images[0].Name) {
				t.Errorf("got %v, want ... %s", err, tt.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := image.Push(ctx, time.Minute, both(t, "127.0.0.1:1/tool:1")...); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("a push that is cancelled: %v", err)
	}
}

// The libraries come from the root, not from this machine, and are of the image's architecture.
func TestLibrariesOfARoot(t *testing.T) {
	const program = "/bin/ls"
	if _, err := os.Stat(program); err != nil {
		t.Skip(err)
	}
	img := image.Image{Name: "test.outrider.dev/ls:1", Root: t.TempDir(), Files: map[string]string{program: program}}
	if err := img.WriteFile(filepath.Join(t.TempDir(), "a.tar")); err == nil || !strings.Contains(err.Error(), img.Root) {
		t.Errorf("libraries that the root does not have: %v", err)
	}
	img.Root = "/"
	for _, arch := range []string{"amd64", "arm64"} {
		img.Arch = arch
		err := img.WriteFile(filepath.Join(t.TempDir(), "a.tar"))
		if arch == (image.Image{}).Architecture() != (err == nil) {
			t.Errorf("%s: %v", arch, err)
		}
	}
}
