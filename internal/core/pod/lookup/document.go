package lookup

import (
	"encoding/json"
	"mime"
	"slices"
	"strings"

	// Supported algorithms of digests.
	_ "crypto/sha256"
	_ "crypto/sha512"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/internal/core/pod/inject/imagecmd"
)

// Media types of OCI and of Docker.
var (
	indexTypes    = []string{v1.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json"}
	manifestTypes = []string{v1.MediaTypeImageManifest, "application/vnd.docker.distribution.manifest.v2+json"}
	configTypes   = []string{v1.MediaTypeImageConfig, "application/vnd.docker.container.image.v1+json"}
)

// A document is an image index or an image manifest.
type document struct {
	platforms []v1.Descriptor // of an index: the entries that may be for Linux
	config    *v1.Descriptor  // of a manifest
}

// parseDocument parses an index or a manifest. A document that could be parsed as both is refused, because the
// node's runtime might parse it as the other one (CVE-2021-41190).
func parseDocument(body []byte, contentType string) (document, error) {
	var d struct {
		MediaType string          `json:"mediaType"`
		Manifests []v1.Descriptor `json:"manifests"`
		Config    *v1.Descriptor  `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		FSLayers  json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return document{}, unfitf("its manifest cannot be read: %v", err)
	}
	types := []string{d.MediaType}
	if served, _, err := mime.ParseMediaType(contentType); err == nil && (slices.Contains(indexTypes, served) || slices.Contains(manifestTypes, served)) {
		types = append(types, served)
	}
	are := func(known []string) bool {
		return !slices.ContainsFunc(types, func(t string) bool { return t != "" && !slices.Contains(known, t) })
	}
	switch {
	case d.FSLayers != nil:
		return document{}, unfitf("its manifest is of Docker's schema 1, which has no configuration: push the image again")
	case d.Manifests != nil && (d.Config != nil || d.Layers != nil):
		return document{}, unfitf("its manifest is an index and a manifest at once")
	case d.Manifests != nil && are(indexTypes):
		platforms, err := linux(d.Manifests)
		return document{platforms: platforms}, err
	case d.Config != nil && are(manifestTypes):
		if !slices.Contains(configTypes, d.Config.MediaType) {
			return document{}, unfitf("it is no image to run: its configuration is %q", d.Config.MediaType)
		}
		return document{config: d.Config}, checkDescriptor(*d.Config)
	}
	return document{}, unfitf("its manifest is neither an index nor a manifest of the types %s", strings.Join(slices.Concat(indexTypes, manifestTypes), ", "))
}

// linux returns the entries of an index that a Linux node might choose. They include entries without a platform,
// whose platform is only known from their configuration.
func linux(all []v1.Descriptor) ([]v1.Descriptor, error) {
	var out []v1.Descriptor
	for _, d := range all {
		if d.Platform != nil && d.Platform.OS != "linux" {
			continue
		}
		if slices.Contains(indexTypes, d.MediaType) {
			return nil, unfitf("its index names another index: name the command in the pod")
		}
		if err := checkDescriptor(d); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o v1.Descriptor) bool { return o.Digest == d.Digest }) {
			out = append(out, d)
		}
	}
	switch {
	case len(out) == 0:
		return nil, unfitf("it has no platform that is Linux")
	case len(out) > maxPlatforms:
		return nil, unfitf("it has %d platforms, and at most %d are supported: name the command in the pod, or the digest of one platform", len(out), maxPlatforms)
	}
	return out, nil
}

// checkDescriptor returns an error if the digest is invalid or the content is too large.
func checkDescriptor(d v1.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return unfitf("the digest %q in its manifest cannot be used: %v", d.Digest, err)
	}
	if d.Size > maxBytes {
		return unfitf("%s has %d bytes, more than the limit of %d", d.Digest, d.Size, maxBytes)
	}
	return nil
}

// parseConfig parses an image configuration. It returns the command, and whether the image is for Linux.
func parseConfig(body []byte) (imagecmd.Command, bool, error) {
	var image v1.Image
	if err := json.Unmarshal(body, &image); err != nil {
		return imagecmd.Command{}, false, unfitf("its configuration cannot be read: %v", err)
	}
	c := imagecmd.Command{Entrypoint: image.Config.Entrypoint, Cmd: image.Config.Cmd}
	if slices.Equal(c.Entrypoint, []string{""}) {
		c.Entrypoint = nil // an empty ENTRYPOINT in a Dockerfile resets it (containerd internal/cri/opts WithProcessArgs)
	}
	size := 0
	for _, word := range slices.Concat(c.Entrypoint, c.Cmd) {
		size += len(word)
		if strings.ContainsRune(word, 0) {
			return imagecmd.Command{}, false, unfitf("its command has a NUL in it, and cannot be run")
		}
	}
	if size > maxCommand {
		return imagecmd.Command{}, false, unfitf("its command has %d bytes, more than the %d that are supported in a pod", size, maxCommand)
	}
	return c, image.OS == "linux" || image.OS == "", nil
}
