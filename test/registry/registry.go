// Package registry is an image registry for tests. It implements the pull part of OCI distribution 1.1
// over TCP, with or without TLS, and with tokens.
package registry

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Registry serves stored content.
type Registry struct {
	Host   string // HOST:PORT
	Server *httptest.Server

	// Before is called for each request, unless it is nil, and returns true if it has answered the request. It
	// must be set before the first request.
	Before func(http.ResponseWriter, *http.Request) bool

	User, Password string // credentials that a client needs for a token; empty: pulls are anonymous

	mu       sync.Mutex
	content  map[digest.Digest]content
	tags     map[string]digest.Digest // by REPOSITORY:TAG
	requests []string
}

type content struct {
	kind string
	body []byte
}

// New starts a registry with TLS, which is stopped with the test.
func New(t testing.TB) *Registry { return start(t, httptest.NewTLSServer) }

// NewPlain starts a registry without TLS.
func NewPlain(t testing.TB) *Registry { return start(t, httptest.NewServer) }

func start(t testing.TB, serve func(http.Handler) *httptest.Server) *Registry {
	r := &Registry{content: map[digest.Digest]content{}, tags: map[string]digest.Digest{}}
	r.Server = serve(r)
	r.Server.Config.ErrorLog = log.New(io.Discard, "", 0) // would contain errors of requests that tests cancel
	t.Cleanup(r.Server.Close)
	u, err := url.Parse(r.Server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = u.Host
	return r
}

// Requests returns the requests so far, as "GET /v2/...", in order.
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Put stores content with a media type.
func (r *Registry) Put(kind string, body []byte) v1.Descriptor {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := digest.FromBytes(body)
	r.content[d] = content{kind, body}
	return v1.Descriptor{MediaType: kind, Digest: d, Size: int64(len(body))}
}

// PutJSON stores a value as JSON.
func (r *Registry) PutJSON(kind string, value any) v1.Descriptor {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // a bug in the test
	}
	return r.Put(kind, body)
}

// Tag gives content a tag in a repository, for example "4" in "shop/shop".
func (r *Registry) Tag(repository, tag string, d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[repository+":"+tag] = d
}

// Image stores an image for one platform, such as "linux/amd64", and returns its manifest's descriptor.
func (r *Registry) Image(platform string, c v1.ImageConfig) v1.Descriptor {
	os, arch, _ := strings.Cut(platform, "/")
	arch, variant, _ := strings.Cut(arch, "/")
	p := v1.Platform{OS: os, Architecture: arch, Variant: variant}
	config := r.PutJSON(v1.MediaTypeImageConfig, v1.Image{Platform: p, Config: c, RootFS: v1.RootFS{Type: "layers"}})
	d := r.PutJSON(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{}})
	d.Platform = &p
	return d
}

// Index stores an index of manifests.
func (r *Registry) Index(manifests ...v1.Descriptor) v1.Descriptor {
	return r.PutJSON(v1.MediaTypeImageIndex, v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: manifests})
}

const token = "a-token-of-this-test"

// ServeHTTP answers one request.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.Path)
	r.mu.Unlock()
	if r.Before != nil && r.Before(w, req) {
		return
	}
	if req.URL.Path == "/token" {
		r.giveToken(w, req)
		return
	}
	repository, what, ok := split(req.URL.Path)
	if !ok && req.URL.Path != "/v2/" {
		http.NotFound(w, req)
		return
	}
	if r.User != "" && req.Header.Get("Authorization") != "Bearer "+token+"/"+repository {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="a, test",scope="repository:%s:pull,push"`, r.Server.URL, repository))
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	if ok { // otherwise the request is for /v2/, by which a client checks the version of the API
		r.serve(w, req, repository, what)
	}
}

// giveToken answers with a token to pull from the requested repository. It refuses a request for any other scope.
func (r *Registry) giveToken(w http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(user+password), []byte(r.User+r.Password)) == 0 || req.URL.Query().Get("service") != "a, test" {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	repository, ok := strings.CutPrefix(req.URL.Query().Get("scope"), "repository:")
	repository, pull := strings.CutSuffix(repository, ":pull")
	if !ok || !pull {
		http.Error(w, "scope", http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(map[string]string{"token": token + "/" + repository})
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request, repository, what string) {
	r.mu.Lock()
	d, tagged := r.tags[repository+":"+what]
	if !tagged {
		d = digest.Digest(what)
	}
	c, ok := r.content[d]
	r.mu.Unlock()
	if !ok {
		http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", c.kind)
	w.Header().Set("Docker-Content-Digest", d.String())
	w.Write(c.body)
}

// split parses /v2/REPOSITORY/manifests/REFERENCE or /v2/REPOSITORY/blobs/REFERENCE.
func split(path string) (repository, what string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	for _, kind := range []string{"/manifests/", "/blobs/"} {
		if i := strings.LastIndex(rest, kind); ok && i > 0 {
			return rest[:i], rest[i+len(kind):], true
		}
	}
	return "", "", false
}
