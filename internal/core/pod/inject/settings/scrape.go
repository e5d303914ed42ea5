package settings

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// A Target is a port and path from which the agent scrapes metrics.
type Target struct {
	Port string `json:"port"`
	Path string `json:"path"`
}

// ScrapeTargets parses a list of targets, port:path,port:path. The default path is /metrics.
func ScrapeTargets(text string) ([]Target, error) {
	var out []Target
	for _, item := range Items(text) {
		port, path, _ := strings.Cut(item, ":")
		t := Target{strings.TrimSpace(port), strings.TrimSpace(path)}
		if t.Path == "" {
			t.Path = "/metrics"
		}
		if n, err := strconv.ParseUint(t.Port, 10, 16); err != nil || n == 0 || t.Path[0] != '/' || !IsPath(t.Path) {
			return nil, errors.New("port:path with commas between, as 8080:/metrics,8081:/stats")
		}
		out = append(out, t)
	}
	return out, nil
}

// IsPath reports whether the agent can request a path. A missing leading slash is allowed, since the agent adds
// it.
func IsPath(path string) bool {
	_, err := url.Parse("http://localhost/" + strings.TrimPrefix(path, "/"))
	return err == nil
}
