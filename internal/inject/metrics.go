package inject

import (
	"encoding/json"
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

// A target is what the agent asks for the app's metrics.
type target struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
}

// addMetrics lets the agent serve the app's metrics with its own, and points Prometheus
// at it.
func (in *injection) addMetrics() error {
	if !in.settings.proxy || !in.merges() {
		return nil
	}
	t := target{}
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
	if err := in.scrapeTargets(&t); err != nil {
		return err
	}
	for port := range strings.SplitSeq(t.Port, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(port), 10, 16)
		switch {
		case t.Port == "":
		case err != nil || n == 0:
			return refuse(BadAnnotation, "", "annotation %sport: %q is no port", scrapePrefix, port)
		case slices.Contains(reservedPorts, int32(n)) || int32(n) == in.settings.status:
			return refuse(PortTaken, "name the app's own port, or annotate the pod "+mergeKey+": \"false\"",
				"annotation %sport: %d is a port of the mesh", scrapePrefix, n)
		}
	}
	for _, key := range keys {
		in.annotate(key, nil)
	}
	for name, value := range map[string]string{"scrape": "true", "path": mergedPath, "port": strconv.Itoa(int(in.settings.status))} {
		in.annotate(scrapePrefix+name, &value)
	}
	if t.Port == "" {
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

// scrapeTargets reads port:path,port:path. The agent asks all ports for one path.
func (in *injection) scrapeTargets(t *target) error {
	text, ok := in.pod.Annotations[scrapeKey]
	if !ok {
		return nil
	}
	var list []string
	for _, item := range items(text) {
		port, path, _ := strings.Cut(item, ":")
		if path == "" {
			path = "/metrics"
		}
		if len(list) > 0 && path != t.Path {
			return refuse(NotYet, "serve them at one path", "annotation %s: %q: the agent asks all ports for one path", scrapeKey, text)
		}
		list, t.Path = append(list, port), path
	}
	t.Port = strings.Join(list, ",")
	return nil
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
