package lookup

import (
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
