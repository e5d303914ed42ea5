package lookup

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestChallenges(t *testing.T) {
	type parameters = map[string]string
	for text, want := range map[string][]challenge{
		`Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a:pull,push"`: {
			{"bearer", parameters{"realm": "https://auth.docker.io/token", "service": "registry.docker.io", "scope": "repository:a:pull,push"}}},
		`Basic realm="a \"b\" c", Bearer Realm = "x" , service=y`: {
			{"bearer", parameters{"realm": "x", "service": "y"}}, {"basic", parameters{"realm": `a "b" c`}}},
		`Basic`:                  {{"basic", parameters{}}},
		`Negotiate, Basic x=y`:   {{"negotiate", parameters{}}, {"basic", parameters{"x": "y"}}},
		`Bearer realm="unclosed`: {{"bearer", parameters{}}},
		`Bearer realm=`:          {{"bearer", parameters{}}},
		`realm="x"`:              nil,
		`"Bearer"`:               nil,
		``:                       nil,
	} {
		if diff := cmp.Diff(want, parseChallenges([]string{text}), cmp.AllowUnexported(challenge{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// FuzzChallenge: nothing panics or hangs, and what is read has no more than was written.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{`Bearer realm="https://a/b",service=x`, `Basic realm="\"", Digest a=b`, "=,=\"", "a\x00b c=\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size := 0
		for _, c := range parseChallenges([]string{text}) {
			size += len(c.scheme)
			for name, value := range c.parameters {
				size += len(name) + len(value)
			}
			if c.scheme == "" || strings.ContainsAny(c.scheme, " ,=\"") {
				t.Errorf("scheme %q", c.scheme)
			}
		}
		if size > 2*len(text) {
			t.Errorf("%d bytes of %d", size, len(text))
		}
	})
}

// FuzzDocument: what is taken can be asked for, by an address without surprises, and is one
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
			if d.Digest.Validate() != nil || strings.ContainsAny(d.Digest.String(), "/?#%") || d.Size > mostBytes {
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
		if size > mostWords {
			t.Errorf("a command of %d bytes is taken", size)
		}
		var image v1.Image
		if json.Unmarshal(body, &image) != nil {
			t.Errorf("%q is taken", body)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add([]byte(`{"token":"a.b.c"}`))
	f.Add([]byte(`{"access_token":"x\r\nCookie: y"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if token, ok := parseToken(body); ok && (token == "" || strings.ContainsAny(token, " \r\n\t\x00")) {
			t.Errorf("%q is taken", token)
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
