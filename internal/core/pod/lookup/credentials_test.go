package lookup

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/test/registry"
)

func credentials(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCredentials(t *testing.T) {
	const password = "pass:word-secret"
	auth := base64.StdEncoding.EncodeToString([]byte("jo:" + password))
	r := registry.New(t)
	r.User, r.Password = "jo", password
	r.Tag("team/shop", "1", r.Index(r.Image("linux/amd64", shop), r.Image("linux/arm64", shop)).Digest)
	tests := map[string]struct{ config, want string }{
		"base64":                   {`{"auths":{"` + r.Host + `":{"auth":"` + auth + `"}}}`, ""},
		"an address":               {`{"auths":{"https://` + r.Host + `/v2/":{"username":"jo","password":"` + password + `"}}}`, ""},
		"the longest path":         {`{"auths":{"` + r.Host + `":{"auth":"eDp5"},"` + r.Host + `/team":{"auth":"` + auth + `"}}}`, ""},
		"a token that is there":    {`{"auths":{"` + r.Host + `":{"registrytoken":"a-token-of-this-test/team/shop"}}}`, ""},
		"another path":             {`{"auths":{"` + r.Host + `/tea":{"auth":"` + auth + `"}}}`, "has no credentials for " + r.Host},
		"a wrong password":         {`{"auths":{"` + r.Host + `":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("jo:wrong-secret")) + `"}}}`, "check its credentials in "},
		"a helper":                 {`{"auths":{"` + r.Host + `":{}},"credsStore":"desktop"}`, "names a credential helper for it, which is not run"},
		"a helper of this host":    {`{"credHelpers":{"` + r.Host + `":"cloud"}}`, "names a credential helper for it, which is not run"},
		"a helper of another host": {`{"credHelpers":{"other.example":"cloud"}}`, "has no credentials for "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := resolver(t, r, Options{Config: credentials(t, tt.config)}).Command(t.Context(), r.Host+"/team/shop:1")
			switch {
			case tt.want == "" && (err != nil || !slices.Equal(c.Entrypoint, shop.Entrypoint)):
				t.Errorf("%v, %v", c, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret")):
				t.Errorf("got %v, want ... %s", err, tt.want)
			}
		})
	}
}

func TestBasic(t *testing.T) {
	r := registry.New(t)
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	r.Before = func(w http.ResponseWriter, req *http.Request) bool {
		if user, password, _ := req.BasicAuth(); user == "jo" && password == "secret" {
			return false
		}
		w.Header().Add("WWW-Authenticate", `Negotiate, Basic realm="shop"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	file := credentials(t, `{"auths":{"`+r.Host+`":{"username":"jo","password":"secret"}}}`)
	if c, err := resolver(t, r, Options{Config: file}).Command(t.Context(), r.Host+"/shop:1"); err != nil {
		t.Errorf("%v, %v", c, err)
	}
	// The file is read again for each look-up.
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	x := resolver(t, r, Options{Config: file})
	if _, err := x.Command(t.Context(), r.Host+"/shop:1"); err == nil || !strings.Contains(err.Error(), "has no credentials for "+r.Host) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte(`{"auths":{"`+r.Host+`":{"username":"jo","password":"secret"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Command(t.Context(), r.Host+"/shop:1@"+r.Image("linux/amd64", shop).Digest.String()); err != nil {
		t.Error(err)
	}
}

// Docker Hub has several names.
func TestCredentialsOfDockerHub(t *testing.T) {
	for _, key := range []string{"https://index.docker.io/v1/", "docker.io", "registry-1.docker.io", "index.docker.io/library", "https://docker.io/library/nginx/"} {
		c, err := readConfig(credentials(t, `{"auths":{"`+key+`":{"username":"jo"}}}`))
		if got := c.of("docker.io", "library/nginx"); err != nil || got.user != "jo" {
			t.Errorf("%s: %v, %+v", key, err, got)
		}
		if got := c.of("other.test", "library/nginx"); got.user != "" {
			t.Errorf("%s: another host gets %+v", key, got)
		}
	}
}

// An identity token is exchanged for an access token by a POST request.
func TestIdentityToken(t *testing.T) {
	r := registry.New(t)
	r.User = "-"
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	r.Before = func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/token" {
			return false
		}
		if req.Method != http.MethodPost || req.FormValue("refresh_token") != "identity" || req.FormValue("scope") != "repository:shop:pull" || req.URL.RawQuery != "" {
			http.Error(w, "no", http.StatusBadRequest)
			return true
		}
		fmt.Fprint(w, `{"access_token":"a-token-of-this-test/shop"}`)
		return true
	}
	file := credentials(t, `{"auths":{"`+r.Host+`":{"identitytoken":"identity"}}}`)
	if c, err := resolver(t, r, Options{Config: file}).Command(t.Context(), r.Host+"/shop:1"); err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

func TestInvalidCredentialFiles(t *testing.T) {
	for text, want := range map[string]string{
		`{"auths":{"h":{"auth":"c2VjcmV0"}}}`: "is not base64 of USER:PASSWORD",
		`{"auths":{"h":{"auth":"sec ret"}}}`:  "is not base64 of USER:PASSWORD",
		`auths: {password: secret}`:           "is not JSON as of Docker's config.json",
	} {
		_, err := New(Options{Config: credentials(t, text)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := New(Options{Config: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a missing file is accepted")
	}
	if _, err := New(Options{Insecure: []string{"http://localhost"}}); err == nil {
		t.Error("a URL is accepted as a host")
	}
}

// If a registry redirects to another host for blobs, that host gets no credentials.
func TestRedirectToAnotherHost(t *testing.T) {
	var mu sync.Mutex
	seen := ""
	storage := httptest.NewServer(nil)
	defer storage.Close()
	r := registry.NewPlain(t)
	r.User, r.Password = "jo", "secret"
	storage.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		seen += fmt.Sprintf("%q%q", req.Header.Get("Authorization"), req.Header.Get("Referer"))
		mu.Unlock()
		req.URL.Path = strings.TrimPrefix(req.URL.Path, "/elsewhere")
		req.Header.Set("Authorization", "Bearer a-token-of-this-test/shop")
		r.Before = nil
		r.ServeHTTP(w, req)
	})
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	r.Before = func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/blobs/") {
			return false
		}
		http.Redirect(w, req, storage.URL+"/elsewhere"+req.URL.Path, http.StatusTemporaryRedirect)
		return true
	}
	file := credentials(t, `{"auths":{"`+r.Host+`":{"username":"jo","password":"secret"}}}`)
	x, err := New(Options{Config: file, Insecure: []string{r.Host, strings.TrimPrefix(storage.URL, "http://")}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := x.Command(t.Context(), r.Host+"/shop:1"); err != nil || len(c.Entrypoint) == 0 {
		t.Errorf("%v, %v", c, err)
	}
	if seen != `""""` {
		t.Errorf("the storage saw %s", seen)
	}
}
