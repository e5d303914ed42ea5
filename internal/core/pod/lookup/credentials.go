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

// A credential holds the credentials for a registry. Error messages never contain them.
type credential struct {
	user, password string
	refresh        string // identitytoken, which is exchanged for a token
	bearer         string // registrytoken, which is used as it is

	host   string // the registry, by the name that images contain
	file   string // the configuration file; empty if there is none
	helper bool   // the file has a credential helper for the registry instead of credentials
}

// advice returns what the user can do if the registry denies access.
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

// A config is the content of Docker's config.json, and of a Secret of type kubernetes.io/dockerconfigjson. It is
// not read by go-containerregistry's keychain, for two reasons: the keychain would run the helper programs that
// the file names, and unlike the kubelet it does not support entries for a path.
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

// readConfig reads the file. If the name is empty, the config is empty too. Errors do not contain the content of
// the file.
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

// of returns the credentials for a repository. If several entries match, the one with the longest path is used.
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
			continue // an empty entry means that a helper has the credentials
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

// registryOf returns HOST or HOST/PATH for a key of auths, which may be a URL. The key of Docker Hub is
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
