package lookup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// A document that is accepted is either an index or a manifest. Its digests are valid, and form URLs without
// special characters.
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

// A command that is accepted can be written into a pod, and run.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"os":"linux","config":{"Entrypoint":["/app"],"Cmd":["-v"]}}`))
	f.Add([]byte(`{"os":"windows","config":{"Entrypoint":[""],"Cmd":["a\u0000b"]}}`))
	f.Add([]byte(`{"config":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, _, err := parseConfig(body)
		if err != nil {
			if !isUnfit(err) {
				t.Errorf("%v is no fault of the image", err)
			}
			return
		}
		words := strings.Join(append(c.Entrypoint, c.Cmd...), "")
		if strings.Contains(words, "\x00") || len(words) > maxCommand {
			t.Errorf("%q is taken", words)
		}
	})
}

// A file with credentials is either used or refused, and error messages do not quote it. No repository gets the
// credentials of another host.
func FuzzCredentials(f *testing.F) {
	f.Add(`{"auths":{"https://index.docker.io/v1/":{"auth":"dXNlcjpzZWNyZXQ="},"r.example/team":{"identitytoken":"secret"}},"credHelpers":{"r.example":"x"}}`, "r.example", "team/app")
	f.Add(`{"auths":{"":{"username":"user","password":"secret"},"/":{"auth":"Og=="}},"credsStore":"x"}`, "", "")
	f.Fuzz(func(t *testing.T, text, host, repo string) {
		file := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readConfig(file)
		if err != nil {
			return
		}
		got := c.of(host, repo)
		if got.user+got.password+got.refresh+got.bearer == "" {
			return
		}
		for key := range c.Auths {
			if at := registryOf(key); at == host || strings.HasPrefix(at, host+"/") {
				return
			}
		}
		t.Errorf("%q gives credentials to %q, which it does not name", text, host)
	})
}
