package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nameAnnotation is where importers of layouts read the image's name.
const nameAnnotation = "io.containerd.image.name"

// build writes the layers of images to a folder and returns the index over them, one for each
// architecture.
func build(dir string, images []Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		built, err := img.build(dir)
		if err != nil {
			return nil, fmt.Errorf("image %s for %s: %w", img.Name, img.Architecture(), err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: img.Architecture()},
		}})
	}
	return index, nil
}

// WriteLayout writes the images of one name, each for another architecture, to a folder in the
// form of an OCI layout, and returns the digest that the name has. What is in the folder is
// replaced; after an error it is as before.
func WriteLayout(dir string, images ...Image) (digest string, err error) {
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		if _, err := layout.FromPath(dir); err != nil {
			return "", fmt.Errorf("%s is neither empty nor an OCI layout", dir)
		}
	}
	fresh, err := beside(dir)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if digest, err = writeLayout(filepath.Join(fresh, "layout"), images); err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return digest, os.Rename(filepath.Join(fresh, "layout"), dir)
}

// beside returns a new folder on the same file system.
func beside(path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
}

func writeLayout(dir string, images []Image) (string, error) {
	layers, err := os.MkdirTemp("", "layers.*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(layers)
	index, err := build(layers, images)
	if err != nil {
		return "", err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	named := layout.WithAnnotations(map[string]string{nameAnnotation: images[0].Name})
	if len(images) > 1 {
		digest, err := index.Digest()
		return digest.String(), errors.Join(err, path.AppendIndex(index, named))
	}
	// One alone needs no index of its own: older importers expect a manifest.
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	digest := manifest.Manifests[0].Digest
	img, err := index.Image(digest)
	if err != nil {
		return "", err
	}
	return digest.String(), errors.Join(path.AppendImage(img, named), dockerManifest(dir, images[0].Name, img))
}

// dockerManifest adds the file by which `docker load` reads a tarball where it does not read
// OCI layouts, before Docker 25. Where it does, the file has no effect.
func dockerManifest(dir, name string, img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	text, err := json.Marshal([]map[string]any{{
		"Config": blob(manifest.Config.Digest), "RepoTags": []string{name}, "Layers": []string{blob(manifest.Layers[0].Digest)},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644)
}

// WriteTarball writes the images of one name to a tarball that holds an OCI layout. After an
// error the file is as before.
func WriteTarball(path string, images ...Image) (err error) {
	dir, err := beside(path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	from := filepath.Join(dir, "layout")
	if _, err := writeLayout(from, images); err != nil {
		return err
	}
	file := filepath.Join(dir, "tar")
	if err := tarFolder(file, from); err != nil {
		return fmt.Errorf("writing image %s: %w", images[0].Name, err)
	}
	return os.Rename(file, path)
}

// tarFolder writes the files of a folder, in the order of their names.
func tarFolder(path, from string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t := newTarball(f)
	err = filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			t.host(strings.TrimPrefix(p, from), p)
		}
		return err
	})
	return errors.Join(err, t.close())
}

// Push writes the images of one name, each for another architecture, into the name's registry
// under an index, and returns its digest. The user's own logins are used, as docker's. A
// registry that does not answer within timeout, or sends nothing more, is an error.
func Push(ctx context.Context, timeout time.Duration, images ...Image) (string, error) {
	ref, err := name.ParseReference(images[0].Name)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "layers.*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	index, err := build(dir, images)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s did not take it within %s", ref.Context().RegistryStr(), timeout))
	defer stop()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	err = remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(transport))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", images[0].Name, err)
	}
	digest, err := index.Digest()
	return digest.String(), err
}
