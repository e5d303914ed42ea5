package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"
)

// The few types of the OCI image specification that an image of one layer takes.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	config struct {
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       container `json:"config"`
		RootFS       rootFS    `json:"rootfs"`
	}
	container struct {
		User       string            `json:",omitempty"`
		Env        []string          `json:",omitempty"`
		Entrypoint []string          `json:",omitempty"`
		Labels     map[string]string `json:",omitempty"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
)

func newDescriptor(kind string, sum []byte, size int64) descriptor {
	return descriptor{MediaType: mediaType(kind), Digest: "sha256:" + hex.EncodeToString(sum), Size: size}
}

func mediaType(kind string) string { return "application/vnd.oci.image." + kind }

// path is where the described content lies in a layout.
func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// A blob is content with its description.
type blob struct {
	descriptor
	content []byte
}

func newBlob(kind string, v any) blob {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above can be marshalled
	}
	sum := sha256.Sum256(content)
	return blob{newDescriptor(kind, sum[:], int64(len(content))), content}
}

func newManifest(config, layer descriptor) manifest {
	return manifest{SchemaVersion: 2, MediaType: mediaType("manifest.v1+json"), Config: config, Layers: []descriptor{layer}}
}

func newIndex(manifest descriptor) index {
	return index{SchemaVersion: 2, MediaType: mediaType("index.v1+json"), Manifests: []descriptor{manifest}}
}

func (img Image) config(layer descriptor) config {
	return config{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config: container{
			User:       img.User,
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: img.Entrypoint,
			// Two names for the same content would be one image to containerd 1.6,
			// which then loses one of the names. This makes the content differ.
			Labels: map[string]string{"dev.outrider.name": img.Name},
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{layer.Digest}},
	}
}
