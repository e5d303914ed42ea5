package webhook

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Path is the path of reviews. Variables of the proxy may be appended.
const Path = "/inject"

// variables maps Istio's short names (pkg/kube/inject/webhook.go) to names of variables.
var variables = map[string]string{
	"cluster": "ISTIO_META_CLUSTER_ID",
	"net":     "ISTIO_META_NETWORK",
}

var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// environOf parses the variables in an escaped path: /inject/k/v/k/v, or /inject/:ENV:k=v:ENV:k=v. A
// slash in a value is written --slash--.
func environOf(path string) (map[string]string, error) {
	rest, ok := strings.CutPrefix(path, Path)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, fmt.Errorf("%s: reviews are answered at %s, and %s/cluster/NAME/net/NAME", path, Path, Path)
	}
	rest = strings.Trim(rest, "/")
	if rest == "" {
		return nil, nil
	}
	var pairs [][2]string
	if legacy, ok := strings.CutPrefix(rest, ":ENV:"); ok {
		for _, pair := range strings.Split(legacy, ":ENV:") {
			name, value, _ := strings.Cut(pair, "=")
			pairs = append(pairs, [2]string{name, value})
		}
	} else {
		parts := strings.Split(rest, "/")
		if len(parts)%2 != 0 {
			return nil, fmt.Errorf("%s: %q has no value: want %s/NAME/VALUE/NAME/VALUE", path, parts[len(parts)-1], Path)
		}
		for i := 0; i < len(parts); i += 2 {
			pairs = append(pairs, [2]string{parts[i], parts[i+1]})
		}
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		name, value, err := pair(p[0], p[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out[name] = value
	}
	return out, nil
}

// pair decodes the name and the value of one variable in a path.
func pair(name, value string) (string, string, error) {
	name, err := url.PathUnescape(name)
	if err != nil {
		return "", "", err
	}
	if value, err = url.PathUnescape(value); err != nil {
		return "", "", err
	}
	if full, ok := variables[name]; ok {
		name = full
	}
	name = strings.ToUpper(name)
	if !variableName.MatchString(name) || strings.ContainsRune(value, 0) {
		return "", "", fmt.Errorf("%q=%q is no variable: want letters, digits and _ in its name", name, value)
	}
	return name, strings.ReplaceAll(value, "--slash--", "/"), nil
}
