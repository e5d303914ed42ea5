package inject

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// scrapePrefix is the prefix of the annotations that the usual configuration of Prometheus reads from pods.
// mergedPath is the path at which the agent serves the app's metrics together with its own.
const (
	scrapePrefix = "prometheus.io/"
	mergedPath   = "/stats/prometheus"
	metricsEnv   = "ISTIO_PROMETHEUS_ANNOTATIONS"
)

// A scrape tells the agent where it finds the app's metrics: at one path of each port, or at the listed targets.
type scrape struct {
	Scrape  string            `json:"scrape"`
	Path    string            `json:"path"`
	Port    string            `json:"port"`
	Targets []settings.Target `json:"targets,omitempty"`
}

// A metrics holds the settings by which Prometheus gets the app's metrics from the agent.
type metrics struct {
	merged  bool
	replace []string // the author's annotations for Prometheus, which are replaced
	app     string   // value of the agent's variable that lists what it scrapes; empty if the app has no metrics
}

// metricsOf returns the settings with which the agent serves the app's metrics together with its own.
func metricsOf(pod *corev1.Pod, s effective, r *verdict.Report) (metrics, error) {
	if !s.proxy || !merges(pod, s.mesh) {
		return metrics{}, nil
	}
	app, out := scrape{}, metrics{merged: true}
	fields := map[string]*string{
		sanitized(scrapePrefix + "scrape"): &app.Scrape, sanitized(scrapePrefix + "path"): &app.Path, sanitized(scrapePrefix + "port"): &app.Port}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if field, ok := fields[sanitized(key)]; ok {
			*field = pod.Annotations[key]
			out.replace = append(out.replace, key)
		}
	}
	if app.Scrape == "false" {
		return metrics{}, nil
	}
	targets, err := targetsOf(pod, s.port, &app, r)
	if err != nil || len(targets) == 0 {
		return out, err
	}
	out.app, err = asJSON(app)
	return out, err
}

// annotate replaces the annotations for Prometheus: they then lead to the agent.
func (m metrics) annotate(pod *corev1.Pod, before *changes.Overrides, port int32) {
	if !m.merged {
		return
	}
	for _, key := range m.replace {
		before.Annotate(pod, key, nil)
	}
	for name, value := range map[string]string{"scrape": "true", "path": mergedPath, "port": strconv.Itoa(int(port))} {
		before.Annotate(pod, scrapePrefix+name, &value)
	}
}

func merges(pod *corev1.Pod, mesh settings.Mesh) bool {
	if own, err := strconv.ParseBool(pod.Annotations[settings.MergeKey]); err == nil {
		return own
	}
	return mesh.EnablePrometheusMerge == nil || *mesh.EnablePrometheusMerge
}

// targetsOf returns the targets that the agent scrapes: the targets in the mesh's annotation, or else the given
// path on each given port. If the agent cannot scrape the targets of the mesh's annotation, the pod is refused.
// The annotations for Prometheus are not meant for the mesh, so a mistake there causes only a warning.
func targetsOf(pod *corev1.Pod, status int32, app *scrape, r *verdict.Report) ([]settings.Target, error) {
	app.Targets, _ = settings.ScrapeTargets(pod.Annotations[settings.ScrapeKey]) // checked together with all annotations
	if len(app.Targets) > 0 {
		app.Port, app.Path = "", ""
		for _, t := range app.Targets {
			if n, _ := strconv.Atoi(t.Port); portOfMesh(n, status) {
				return nil, verdict.Refuse(verdict.PortConflict, "name the app's own port, or annotate the pod "+settings.MergeKey+": \"false\"",
					"annotation %s: %d is a port of the mesh", settings.ScrapeKey, n)
			}
		}
		return app.Targets, nil
	}
	const lost = "the agent does not scrape the app's metrics there"
	if !settings.IsPath(app.Path) {
		r.Warn("annotation %spath: %q is no path: %s", scrapePrefix, app.Path, lost)
		return nil, nil
	}
	var out []settings.Target
	var ports []string
	for _, port := range settings.Items(app.Port) {
		n := namedPort(pod, port)
		switch {
		case n == 0:
			r.Warn("annotation %sport: %q is no port, and no container declares one of that name: %s", scrapePrefix, port, lost)
			continue
		case portOfMesh(n, status):
			r.Warn("annotation %sport: %d is a port of the mesh: %s", scrapePrefix, n, lost)
			continue
		}
		ports = append(ports, strconv.Itoa(n))
		out = append(out, settings.Target{Port: strconv.Itoa(n), Path: app.Path})
	}
	app.Port = strings.Join(ports, ",")
	return out, nil
}

func portOfMesh(port int, status int32) bool {
	return slices.Contains(reservedPorts, int32(port)) || int32(port) == status
}

// namedPort returns a port's number. The port is given as a number or as the name with which a container declares
// it. The result is 0 if it is neither.
func namedPort(pod *corev1.Pod, port string) int {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		return int(n)
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port {
				return int(p.ContainerPort)
			}
		}
	}
	return 0
}

// sanitized returns a name as Prometheus' relabelling changes it: prometheus.io/port and prometheus.io_port
// become equal.
func sanitized(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
