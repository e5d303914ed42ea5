package lookup

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

const dockerIO = "docker.io"

// A credential is a registry's credential. No error message contains it.
type credential struct {
	user, password string
	refresh        string // identitytoken: it is exchanged for a token
	bearer         string // registrytoken: a token

	host   string // the registry, under the name that images use
	file   string // the configuration file; empty: none
	helper bool   // the file names a credential helper for the registry
}

// advice says what to do when a registry denies access.
func (c credential) advice() string {
	switch {
	case c.file == "":
		return "give its credentials in a file (--registry-config)"
	case c.helper:
		return fmt.Sprintf("%s names a credential helper for it, which is not run: put the credentials into auths", c.file)
	case c.user == "" && c.refresh == "" && c.bearer == "":
		return fmt.Sprintf("%s has no credentials for %s", c.file, c.host)
	}
	return "check its credentials in " + c.file
}

// A config is Docker's config.json, which is also the content of a Secret of type
// kubernetes.io/dockerconfigjson. We do not read it through go-containerregistry's keychain, which would run
// the helper programs that the file names, and does not know the kubelet's rule that an entry may be for a
// path.
type config struct {
	Auths map[string]struct {
		Auth          string `json:"auth"` // base64 of user:password
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`

	file string
}

// readConfig reads the file; without a file name it returns an empty config. Its errors do not quote the
// file.
func readConfig(file string) (config, error) {
	c := config{file: file}
	if file == "" {
		return c, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("credentials of registries: %w", err)
	}
	if json.Unmarshal(data, &c) != nil {
		return c, fmt.Errorf("credentials of registries: %s is not JSON as of Docker's config.json", file)
	}
	for _, host := range slices.Sorted(maps.Keys(c.Auths)) {
		a := c.Auths[host]
		if _, _, ok := userOf(a.Auth); a.Auth != "" && !ok {
			return c, fmt.Errorf("credentials of registries: %s: auths[%q].auth is not base64 of USER:PASSWORD", file, host)
		}
	}
	return c, nil
}

func userOf(auth string) (user, password string, ok bool) {
	text, err := base64.StdEncoding.DecodeString(auth)
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(strings.TrimRight(string(text), "\x00"), ":")
	return user, password, ok
}

// of returns the credentials of a repository. If several entries match, the longest path counts.
func (c config) of(host, repo string) credential {
	out, best := credential{host: host, file: c.file, helper: c.CredsStore != ""}, -1
	for key, a := range c.Auths {
		at := registryOf(key)
		if len(at) <= best || host+"/"+repo != at && !strings.HasPrefix(host+"/"+repo, at+"/") {
			continue
		}
		user, password := a.Username, a.Password
		if a.Auth != "" {
			user, password, _ = userOf(a.Auth)
		}
		if user == "" && a.IdentityToken == "" && a.RegistryToken == "" {
			continue // an empty entry refers to a helper
		}
		best = len(at)
		out.user, out.password, out.refresh, out.bearer = user, password, a.IdentityToken, a.RegistryToken
	}
	for key := range c.CredHelpers {
		out.helper = out.helper || registryOf(key) == host
	}
	out.helper = out.helper && best < 0
	return out
}

// registryOf returns HOST or HOST/PATH for a key, which may be a URL: Docker Hub's is
// https://index.docker.io/v1/.
func registryOf(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, path, _ := strings.Cut(strings.TrimRight(key, "/"), "/")
	if path == "v1" || path == "v2" {
		path = ""
	}
	if host == "index.docker.io" || host == hub {
		host = dockerIO
	}
	if path == "" {
		return host
	}
	return host + "/" + path
}
