package image

import (
	"encoding/json"
	"runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// pathOf is where the described content lies in a layout.
func pathOf(d v1.Descriptor) string {
	return v1.ImageBlobsDir + "/" + d.Digest.Algorithm().String() + "/" + d.Digest.Encoded()
}

// blob returns v as JSON, and its description.
func blob(mediaType string, v any) (v1.Descriptor, string) {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of the specification can be marshalled
	}
	return v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}, string(content)
}

func manifestOf(config, layer v1.Descriptor) v1.Manifest {
	return v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: config, Layers: []v1.Descriptor{layer}}
}

func indexOf(manifest v1.Descriptor) v1.Index {
	return v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{manifest}}
}

func (img Image) config(layer v1.Descriptor) v1.Image {
	return v1.Image{
		Platform: v1.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config: v1.ImageConfig{
			User:       img.User,
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: img.Entrypoint,
			// containerd 1.6 takes two names of the same content for one image, and then
			// loses one of them. The label makes the content differ.
			Labels: map[string]string{"dev.outrider.name": img.Name},
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	}
}
