package lookup

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/test/registry"
)

var shop = v1.ImageConfig{Entrypoint: []string{"/entry.sh"}, Cmd: []string{"serve"}, Env: []string{"PATH=/bin"}}

// resolver returns a resolver that trusts the certificate of the test registry.
func resolver(t testing.TB, r *registry.Registry, o Options) *Resolver {
	t.Helper()
	if o.Transport == nil {
		o.Transport = r.Server.Client().Transport
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute // for slow machines
	}
	out, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCommand(t *testing.T) {
	r := registry.New(t)
	arm, amd := r.Image("linux/arm64/v8", shop), r.Image("linux/amd64", shop)
	windows := r.Image("windows/amd64", v1.ImageConfig{Entrypoint: []string{`C:\shop.exe`}})
	attestation := r.Put(v1.MediaTypeImageManifest, []byte(`{"not":"an image"}`))
	attestation.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	index := r.Index(arm, amd, windows, attestation)
	unsaid := r.Image("linux/amd64", shop)
	unsaid.Platform = nil
	otherOS := windows
	otherOS.Platform = nil
	docker := r.Put("application/vnd.docker.distribution.manifest.v2+json", fmt.Appendf(nil,
		`{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":%q,"size":1},"layers":[]}`,
		r.Put("application/octet-stream", []byte(`{"os":"linux","config":{"Entrypoint":[""],"Cmd":["sh"]}}`)).Digest))
	for tag, d := range map[string]v1.Descriptor{"4": index, "latest": amd, "unsaid": r.Index(unsaid, otherOS), "docker": docker} {
		r.Tag("shop/shop", tag, d.Digest)
	}
	want := imagecmd.Command{Entrypoint: shop.Entrypoint, Cmd: shop.Cmd}
	tests := map[string]struct {
		image string
		of    v1.Descriptor
		want  imagecmd.Command
	}{
		"an index by its tag":                    {"shop/shop:4", index, want},
		"a manifest by the default tag":          {"shop/shop", amd, want},
		"by a digest":                            {"shop/shop@" + index.Digest.String(), index, want},
		"a tag before a digest is ignored":       {"shop/shop:nowhere@" + amd.Digest.String(), amd, want},
		"platforms named only in configurations": {"shop/shop:unsaid", r.Index(unsaid, otherOS), want},
		"Docker's types, an entrypoint reset":    {"shop/shop:docker", docker, imagecmd.Command{Cmd: []string{"sh"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Digest = tt.of.Digest.String()
			got, err := resolver(t, r, Options{}).Command(t.Context(), r.Host+"/"+tt.image)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// Every failure has a reason and is either permanent or temporary. The message contains nothing that the registry
// sent.
func TestNoCommand(t *testing.T) {
	status := func(code int) func(*registry.Registry) {
		return func(r *registry.Registry) {
			r.Before = func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "<b>internal: secret</b>", code)
				return true
			}
		}
	}
	put := func(kind, body string) func(*registry.Registry) {
		return func(r *registry.Registry) { r.Tag("shop", "1", r.Put(kind, []byte(body)).Digest) }
	}
	tests := map[string]struct {
		set    func(*registry.Registry)
		want   string
		unfit  bool // the image cannot be used, so the failure is permanent
		config string
	}{
		"nothing there": {set: func(*registry.Registry) {}, want: "404 Not Found: the image is not there"},
		"unauthorized":  {set: status(401), want: "401 Unauthorized: it is private, or not there; give its credentials in a file (--registry-config)"},
		"forbidden":     {set: status(403), want: "403 Forbidden: it is private, or not there; give its credentials in a file (--registry-config)"},
		"too many":      {set: status(429), want: "429 Too Many Requests: too many requests"},
		"broken":        {set: status(500), want: "500 Internal Server Error"},
		"platforms that differ": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Index(r.Image("linux/amd64", shop), r.Image("linux/arm64", v1.ImageConfig{Cmd: []string{"/arm"}})).Digest)
		}, want: `it runs "/entry.sh serve" on linux/amd64 and "/arm" on linux/arm64: name the command in the pod`, unfit: true},
		"no Linux": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Index(r.Image("windows/amd64", shop)).Digest)
		}, want: "it has no platform that is Linux", unfit: true},
		"one of Windows": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Image("windows/amd64", shop).Digest)
		}, want: "it is not for Linux", unfit: true},
		"an index of indexes": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Index(r.Index(r.Image("linux/amd64", shop))).Digest)
		}, want: "names another index", unfit: true},
		"an index of indexes by the wrong type": {set: func(r *registry.Registry) {
			d := r.Index(r.Image("linux/amd64", shop))
			d.MediaType = v1.MediaTypeImageManifest
			r.Tag("shop", "1", r.Index(d).Digest)
		}, want: "names another index", unfit: true},
		"too many platforms": {set: func(r *registry.Registry) {
			var all []v1.Descriptor
			for i := range maxPlatforms + 1 {
				all = append(all, r.Image("linux/"+fmt.Sprint(i), shop))
			}
			r.Tag("shop", "1", r.Index(all...).Digest)
		}, want: "33 platforms, and at most 32", unfit: true},
		"two in one": {set: put(v1.MediaTypeImageIndex, `{"manifests":[],"config":{}}`), want: "an index and a manifest at once", unfit: true},
		"an index that is served as a manifest": {set: put(v1.MediaTypeImageManifest, `{"manifests":[]}`),
			want: "neither an index nor a manifest", unfit: true},
		"schema 1":     {set: put("application/vnd.docker.distribution.manifest.v1+json", `{"fsLayers":[]}`), want: "schema 1", unfit: true},
		"no image":     {set: put(v1.MediaTypeImageManifest, `{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"}}`), want: "no image to run", unfit: true},
		"no JSON":      {set: put(v1.MediaTypeImageManifest, `<html>`), want: "its manifest cannot be read", unfit: true},
		"a bad digest": {set: put(v1.MediaTypeImageManifest, `{"config":{"mediaType":"`+v1.MediaTypeImageConfig+`","digest":"sha256:../../../x"}}`), want: "cannot be used", unfit: true},
		"a huge manifest": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Put(v1.MediaTypeImageManifest, make([]byte, maxBytes+1)).Digest)
		}, want: "sent more than 4194304 bytes"},
		"a configuration with a huge size": {set: put(v1.MediaTypeImageManifest, `{"config":{"mediaType":"`+v1.MediaTypeImageConfig+`","size":99999999,"digest":"sha256:`+strings.Repeat("a", 64)+`"}}`),
			want: "more than the limit of 4194304", unfit: true},
		"a huge command": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Image("linux/amd64", v1.ImageConfig{Cmd: []string{strings.Repeat("x", maxCommand+1)}}).Digest)
		}, want: "its command has 32769 bytes", unfit: true},
		"a command that cannot be": {set: func(r *registry.Registry) {
			r.Tag("shop", "1", r.Image("linux/amd64", v1.ImageConfig{Cmd: []string{"a\x00b"}}).Digest)
		}, want: "NUL", unfit: true},
		"a manifest that is another one": {set: func(r *registry.Registry) {
			good, evil := r.Image("linux/amd64", shop), r.Image("linux/amd64", v1.ImageConfig{Cmd: []string{"/evil"}})
			r.Tag("shop", "1", good.Digest)
			swap(r, "/manifests/"+good.Digest.String(), "/manifests/"+evil.Digest.String())
		}, want: "sent something else for sha256:"},
		"a configuration that is another one": {set: func(r *registry.Registry) {
			good := r.PutJSON(v1.MediaTypeImageConfig, v1.Image{Platform: v1.Platform{OS: "linux"}, Config: shop})
			evil := r.PutJSON(v1.MediaTypeImageConfig, v1.Image{Platform: v1.Platform{OS: "linux"}, Config: v1.ImageConfig{Cmd: []string{"/evil"}}})
			r.Tag("shop", "1", r.PutJSON(v1.MediaTypeImageManifest, v1.Manifest{Config: good}).Digest)
			swap(r, "/blobs/"+good.Digest.String(), "/blobs/"+evil.Digest.String())
		}, want: "do not trust this registry"},
		"a redirect into the open": {set: func(r *registry.Registry) {
			r.Before = func(w http.ResponseWriter, req *http.Request) bool {
				http.Redirect(w, req, "http://"+r.Host+"/?signature=secret", http.StatusTemporaryRedirect)
				return true
			}
		}, want: "redirects from TLS to http"},
		"a redirect without end": {set: func(r *registry.Registry) {
			r.Before = func(w http.ResponseWriter, req *http.Request) bool {
				http.Redirect(w, req, "/?signature=secret", http.StatusTemporaryRedirect)
				return true
			}
		}, want: "redirects more than 5 times"},
		"a realm without TLS":                {set: challenged(`Bearer realm="http://127.0.0.1/token"`), want: "a realm by https"},
		"a realm that is an address of ours": {set: challenged(`Bearer realm="https://169.254.169.254/token"`), want: "a realm by https"},
		"no realm":                           {set: challenged(`Bearer service="x"`), want: "a realm by https"},
		"an unclosed challenge":              {set: challenged(`Bearer realm="https://unclosed`), want: "a realm by https"},
		"an unsupported scheme":              {set: challenged(`Negotiate`), want: "401 Unauthorized"},
		"no credentials for Basic": {set: challenged(`Basic realm="x"`), want: "names a credential helper for it, which is not run",
			config: `{"credsStore":"desktop"}`},
		"no token in the answer":    {set: tokens(`{"secret":"x"}`), want: "Bearer with a token"},
		"a token that is no header": {set: tokens(`{"access_token":"x\r\nsecret: y"}`), want: "invalid header field value"},
		"a huge answer for a token": {set: tokens(strings.Repeat(" ", maxBytes+1)), want: "sent more than 4194304 bytes"},
		"no JSON for a token":       {set: tokens(`<secret>`), want: "Bearer with a token"},
		"a redirect of the token's": {set: func(r *registry.Registry) {
			r.User = "jo"
			r.Before = func(w http.ResponseWriter, req *http.Request) bool {
				if req.URL.Path == "/token" {
					http.Redirect(w, req, "http://"+r.Host+"/?secret", http.StatusTemporaryRedirect)
				}
				return req.URL.Path == "/token"
			}
		}, want: "redirects from TLS to http"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := registry.New(t)
			r.Tag("shop", "1", digest.FromString("nothing"))
			tt.set(r)
			o := Options{}
			if tt.config != "" {
				o.Config = credentials(t, tt.config)
			}
			_, err := resolver(t, r, o).Command(t.Context(), r.Host+"/shop:1")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "image "+r.Host+"/shop:1: ") {
				t.Errorf("got %v, want ... %s", err, tt.want)
			}
			if isUnfit(err) != tt.unfit {
				t.Errorf("%v: permanent is %t", err, !tt.unfit)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("a secret is in %q", err)
			}
		})
	}
}

// swap makes the registry answer requests for the first path with the content of the second path.
func swap(r *registry.Registry, from, to string) {
	r.Before = func(_ http.ResponseWriter, req *http.Request) bool {
		req.URL.Path = strings.Replace(req.URL.Path, from, to, 1)
		return false
	}
}

// tokens makes the registry answer each request for a token with the given text.
func tokens(answer string) func(*registry.Registry) {
	return func(r *registry.Registry) {
		r.User = "jo"
		r.Before = func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path == "/token" {
				fmt.Fprint(w, answer)
			}
			return req.URL.Path == "/token"
		}
	}
}

func challenged(challenge string) func(*registry.Registry) {
	return func(r *registry.Registry) {
		r.Before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	}
}

func TestInvalidNames(t *testing.T) {
	for _, image := range []string{"", "shop/UPPER", "a b", "a@sha256:short", "../etc/passwd", strings.Repeat("a", 64)} {
		if _, err := resolver(t, registry.New(t), Options{}).Command(t.Context(), image); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("image %q", image)) {
			t.Errorf("%q: %v", image, err)
		}
	}
}

// Images of docker.io may have short names. Another host serves them.
func TestDockersNames(t *testing.T) {
	r := registry.New(t)
	for image, path := range map[string]string{
		"nginx":                    "/v2/library/nginx/manifests/latest",
		"docker.io/nginx:1":        "/v2/library/nginx/manifests/1",
		"index.docker.io/shop/x:2": "/v2/shop/x/manifests/2",
	} {
		requested := ""
		transport := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path == "/v2/" {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
			}
			requested = req.URL.String()
			return nil, fmt.Errorf("not in a test")
		})
		_, err := resolver(t, r, Options{Transport: transport}).Command(t.Context(), image)
		if err == nil || requested != "https://registry-1.docker.io"+path {
			t.Errorf("%s: requested %s: %v", image, requested, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Addresses of this machine and link-local addresses are contacted only if the registry is listed as insecure.
func TestAddressesOfThisMachineAreRefused(t *testing.T) {
	r := registry.NewPlain(t)
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	for _, tt := range []struct {
		insecure []string
		want     string
	}{
		{nil, "127.0.0.1 is this machine or its link"},
		{[]string{r.Host}, ""},
	} {
		x, err := New(Options{Insecure: tt.insecure, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.Command(t.Context(), r.Host+"/shop:1")
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%v: %v", tt.insecure, err)
		}
	}
	for address, want := range map[string]struct{ none, private bool }{ // whether the address is contacted by default, and if private networks are allowed
		"127.0.0.1:443": {}, "[::1]:443": {}, "169.254.169.254:80": {}, "[fe80::1]:443": {}, "[fe80::1%eth0]:443": {}, "0.0.0.0:443": {},
		"[::ffff:127.0.0.1]:443": {}, "224.0.0.1:443": {}, "[::ffff:10.0.0.1]:443": {false, true},
		"10.0.0.1:443": {false, true}, "172.31.255.255:443": {false, true}, "192.168.1.1:443": {false, true}, "100.64.0.1:443": {false, true}, "[fd00:ec2::254]:80": {false, true},
		"[64:ff9b::a9fe:a9fe]:80": {}, "[64:ff9b::a00:1]:443": {false, true}, "[64:ff9b::c000:264]:443": {true, true}, "[64:ff9b:1::a00:1]:443": {},
		"[2002:a00:1::1]:443": {}, "[2001:0:a00:1::1]:443": {}, "[::10.0.0.1]:443": {}, "198.18.0.1:443": {}, "0.1.2.3:443": {}, "255.255.255.255:443": {}, "[fec0::1]:443": {},
		"172.32.0.1:443": {true, true}, "100.128.0.1:443": {true, true}, "93.184.216.34:443": {true, true}, "[2606:4700::1]:443": {true, true},
	} {
		if err := checkAddress(address, nil); (err == nil) != want.none {
			t.Errorf("%s: %v", address, err)
		}
		if err := checkAddress(address, Private); (err == nil) != want.private {
			t.Errorf("%s, with private networks: %v", address, err)
		}
	}
	if len(r.Requests()) == 0 {
		t.Error("no registry was contacted")
	}
}

func TestARegistryWithoutTLSIsNamed(t *testing.T) {
	r := registry.NewPlain(t)
	_, err := resolver(t, r, Options{}).Command(t.Context(), r.Host+"/shop:1")
	if err == nil || !strings.Contains(err.Error(), r.Host+" uses plain HTTP: if that is intended, name it by --insecure-registry") {
		t.Error(err)
	}
}

// If the response to HEAD has no digest, the resolver fetches the manifest.
func TestWithoutTheHeader(t *testing.T) {
	r := registry.New(t)
	image := r.Image("linux/amd64", shop)
	r.Tag("shop", "1", image.Digest)
	r.Before = func(_ http.ResponseWriter, req *http.Request) bool { return req.Method == http.MethodHead }
	c, err := resolver(t, r, Options{}).Command(t.Context(), r.Host+"/shop:1")
	if err != nil || c.Digest != image.Digest.String() {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestAProxyMayBeThisMachine(t *testing.T) {
	r := registry.NewPlain(t)
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	proxy, err := url.Parse(r.Server.URL)
	if err != nil {
		t.Fatal(err)
	}
	x, err := New(Options{Insecure: []string{"registry.example"}, Proxy: http.ProxyURL(proxy), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := x.Command(t.Context(), "registry.example/shop:1"); err != nil || len(c.Entrypoint) == 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
