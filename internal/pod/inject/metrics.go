package inject

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// What Prometheus' usual configuration for pods reads, by the part after the prefix.
const (
	scrapePrefix = "prometheus.io/"
	mergedPath   = "/stats/prometheus"
	targets      = "ISTIO_PROMETHEUS_ANNOTATIONS"
)

// reservedPorts are the mesh's: what is there is no metric of the app's (Istio refuses
// the same).
var reservedPorts = []int32{15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090}

// A scrape is what the agent asks for the app's metrics: all ports for one path, or
// targets.
type scrape struct {
	Scrape  string   `json:"scrape"`
	Path    string   `json:"path"`
	Port    string   `json:"port"`
	Targets []target `json:"targets,omitempty"`
}

// A target is a port with a path of its own.
type target struct {
	Port string `json:"port"`
	Path string `json:"path"`
}

// addMetrics lets the agent serve the app's metrics with its own, and points Prometheus
// at it.
func (in *injection) addMetrics() error {
	if !in.settings.proxy || !in.merges() {
		return nil
	}
	t := scrape{}
	own := map[string]*string{"scrape": &t.Scrape, "path": &t.Path, "port": &t.Port}
	var keys []string
	for _, key := range sortedKeys(in.pod.Annotations) {
		for name, to := range own {
			if sanitized(key) == sanitized(scrapePrefix+name) {
				*to = in.pod.Annotations[key]
				keys = append(keys, key)
			}
		}
	}
	if t.Scrape == "false" {
		return nil
	}
	if err := in.checkTargets(&t); err != nil {
		return err
	}
	for _, key := range keys {
		in.annotate(key, nil)
	}
	for name, value := range map[string]string{"scrape": "true", "path": mergedPath, "port": strconv.Itoa(int(in.settings.status))} {
		in.annotate(scrapePrefix+name, &value)
	}
	if t.Port == "" && len(t.Targets) == 0 {
		return nil // nothing of the app's to add
	}
	text, err := json.Marshal(t)
	in.scrape = string(text)
	return err
}

func (in *injection) merges() bool {
	merge := true
	if v := in.settings.mesh.EnablePrometheusMerge; v != nil {
		merge = *v
	}
	if text, ok := in.pod.Annotations[mergeKey]; ok {
		if own, err := strconv.ParseBool(text); err == nil {
			merge = own
		}
	}
	return merge
}

// checkTargets adds the targets that the pod names, which stand for port and path, and
// refuses what the agent could not ask.
func (in *injection) checkTargets(t *scrape) error {
	t.Targets, _ = scrapeTargets(in.pod.Annotations[scrapeKey]) // checked with all annotations
	ask, key := t.Targets, scrapeKey
	if len(ask) > 0 {
		t.Port, t.Path = "", ""
	} else if key = scrapePrefix + "port"; t.Port != "" {
		for port := range strings.SplitSeq(t.Port, ",") {
			ask = append(ask, target{strings.TrimSpace(port), t.Path})
		}
	}
	for _, a := range ask {
		n, err := strconv.ParseUint(a.Port, 10, 16)
		switch {
		case err != nil || n == 0:
			return refuse(BadAnnotation, "", "annotation %s: %q is no port", key, a.Port)
		case slices.Contains(reservedPorts, int32(n)) || int32(n) == in.settings.status:
			return refuse(PortTaken, "name the app's own port, or annotate the pod "+mergeKey+": \"false\"",
				"annotation %s: %d is a port of the mesh", key, n)
		case !isPath(a.Path):
			return refuse(BadAnnotation, "", "annotation %spath: %q is no path", scrapePrefix, a.Path)
		}
	}
	return nil
}

// scrapeTargets reads port:path,port:path. A path that is not there is /metrics.
func scrapeTargets(text string) ([]target, error) {
	var out []target
	for _, item := range items(text) {
		port, path, _ := strings.Cut(item, ":")
		t := target{strings.TrimSpace(port), strings.TrimSpace(path)}
		if t.Path == "" {
			t.Path = "/metrics"
		}
		if n, err := strconv.ParseUint(t.Port, 10, 16); err != nil || n == 0 || t.Path[0] != '/' || !isPath(t.Path) {
			return nil, errors.New("port:path with commas between, as 8080:/metrics,8081:/stats")
		}
		out = append(out, t)
	}
	return out, nil
}

// isPath says whether the agent can ask for it; it puts a / before it if there is none.
func isPath(path string) bool {
	_, err := url.Parse("http://localhost/" + strings.TrimPrefix(path, "/"))
	return err == nil
}

// sanitized is a name as Prometheus' relabelling sees it: prometheus.io/port and
// prometheus.io_port are one.
func sanitized(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
