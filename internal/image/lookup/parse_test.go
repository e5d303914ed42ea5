package lookup

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// FuzzDocument: what is accepted has a valid digest and an address without special characters, and is one
// thing only.
func FuzzDocument(f *testing.F) {
	d := `{"mediaType":"` + v1.MediaTypeImageConfig + `","digest":"sha256:` + strings.Repeat("ab", 32) + `","size":7}`
	for _, s := range []string{`{"config":` + d + `,"layers":[]}`, `{"manifests":[` + d + `]}`, `{"manifests":[],"Layers":[]}`, `[]`, `{"CONFIG":null}`} {
		f.Add([]byte(s), v1.MediaTypeImageManifest)
		f.Add([]byte(s), v1.MediaTypeImageIndex+"; charset=utf-8")
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		doc, err := parseDocument(body, contentType)
		if err != nil {
			if !isUnfit(err) {
				t.Errorf("%v is no fault of the image", err)
			}
			return
		}
		if (doc.config != nil) == (len(doc.platforms) > 0) {
			t.Errorf("%+v is both, or nothing", doc)
		}
		all := doc.platforms
		if doc.config != nil {
			all = append(all, *doc.config)
		}
		for _, d := range all {
			if d.Digest.Validate() != nil || strings.ContainsAny(d.Digest.String(), "/?#%") || d.Size > maxBytes {
				t.Errorf("%+v is taken", d)
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	for _, s := range []string{`{"os":"linux","config":{"Entrypoint":["/a"],"Cmd":["b"]}}`, `{"config":{"entrypoint":[""],"cmd":null}}`, `{"config":{"Cmd":"sh"}}`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, _, err := parseConfig(body)
		if err != nil {
			return
		}
		size := 0
		for _, w := range append(append([]string{}, c.Entrypoint...), c.Cmd...) {
			size += len(w)
			if strings.ContainsRune(w, 0) {
				t.Errorf("%q is taken", w)
			}
		}
		if size > maxCommand {
			t.Errorf("a command of %d bytes is taken", size)
		}
		var image v1.Image
		if json.Unmarshal(body, &image) != nil {
			t.Errorf("%q is taken", body)
		}
	})
}

func FuzzPlace(f *testing.F) {
	f.Add("https://index.docker.io/v1/", "library/nginx")
	f.Add("ghcr.io/team", "team/x")
	f.Fuzz(func(t *testing.T, key, repo string) {
		at := place(key)
		if strings.HasSuffix(at, "/") {
			t.Errorf("%q is at %q", key, at)
		}
	})
}
