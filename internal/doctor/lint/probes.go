package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// A check is a probe with the name of its field in the API.
type check struct {
	name string
	*corev1.Probe
}

func (m member) checks() []check {
	return slices.DeleteFunc([]check{{"startupProbe", m.StartupProbe}, {"livenessProbe", m.LivenessProbe}, {"readinessProbe", m.ReadinessProbe}},
		func(c check) bool { return c.Probe == nil })
}

// port returns the port of the pod to which a probe connects, the field that sets it, and the path of an HTTP probe.
// The port is 0 if the probe does not connect to the pod.
func (c check) port(m member) (port int, field path, of string) {
	switch {
	case c.HTTPGet != nil && c.HTTPGet.Host == "":
		return podspec.PortNumber(m.Container, c.HTTPGet.Port), m.field.plus(c.name, "httpGet", "port"), c.HTTPGet.Path
	case c.TCPSocket != nil && c.TCPSocket.Host == "":
		return podspec.PortNumber(m.Container, c.TCPSocket.Port), m.field.plus(c.name, "tcpSocket", "port"), ""
	case c.GRPC != nil:
		return int(c.GRPC.Port), m.field.plus(c.name, "grpc", "port"), ""
	}
	return 0, nil, ""
}

func (m member) declares(port int) bool {
	return slices.ContainsFunc(m.Ports, func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port })
}

// probeOfLater finds startup probes of sidecars that connect to a container which is listed later. They never
// succeed, because the kubelet starts that container only after the probe has succeeded.
func probeOfLater(s subject, b *builder) {
	all := s.members()
	for _, m := range all {
		if m.kind != startup.Sidecar || m.StartupProbe == nil {
			continue
		}
		port, field, _ := check{"startupProbe", m.StartupProbe}.port(m)
		if port == 0 || m.declares(port) {
			continue
		}
		for _, later := range all[m.at+1:] {
			if !later.declares(port) {
				continue
			}
			b.add(clue{code: "probe-deadlock", title: fmt.Sprintf("the startup probe of %s needs port %d of %s, which starts only after it succeeds", m.Name, port, later.Name),
				field: field, evidence: fmt.Sprint(port), why: "the kubelet waits for a sidecar's startup probe before it starts the next container: the pod stays in Init",
				do: fmt.Sprintf("let the startup probe check %s itself, and make the probe of %s a readiness probe", m.Name, later.Name), source: "kubelet v1.34.4 computeInitContainerActions"})
			break
		}
	}
}

// deadline returns the time after which the kubelet kills a container that does not respond to its probe. It also
// returns that probe: the startup probe, or else the liveness probe. It returns false if there is neither.
func (m member) deadline() (check, time.Duration, bool) {
	for _, c := range m.checks() {
		if c.name == "readinessProbe" {
			continue
		}
		seconds := int64(max(c.InitialDelaySeconds, 0)) + int64(cmp.Or(max(c.PeriodSeconds, 0), 10))*int64(cmp.Or(max(c.FailureThreshold, 0), 3))
		return c, time.Duration(seconds) * time.Second, true
	}
	return check{}, 0, false
}

// killedWhileWaiting finds containers that a probe may kill while their command still waits.
func killedWhileWaiting(s subject, b *builder) {
	for _, f := range s.reading.Found {
		m, ok := s.member(f.Container)
		if !ok || m.kind == startup.Init {
			continue
		}
		c, deadline, probed := m.deadline()
		if !probed {
			continue
		}
		what := clue{code: "killed-while-waiting", field: m.field.plus(c.name),
			do: "let a gate wait instead of the command: the kubelet makes no other probe until it has opened", source: "kubelet v1.34.4 prober/worker.go"}
		switch f.Mechanism {
		case startup.Sleep:
			d, err := time.ParseDuration(strings.TrimPrefix(f.By, "sleep "))
			if err != nil || d < deadline {
				continue
			}
			what.title = fmt.Sprintf("%s sleeps %s before it begins, and its %s kills it after %s", m.Name, d, c.name, deadline)
			what.why = "it is killed before its command runs, at every start"
		case startup.HealthLoop:
			what.severity = finding.Warning
			what.title = fmt.Sprintf("%s waits in a loop without end, and its %s kills it after %s", m.Name, c.name, deadline)
			what.why = "when the wait takes longer, the container is restarted and waits from the beginning, with back-off"
		default:
			continue
		}
		b.add(what)
	}
}

// statusPorts are the ports on which a mesh's proxy reports its readiness (package knownproxy names the sources).
var statusPorts = map[int]string{
	contract.StatusPort: "the proxy's agent", contract.ReadinessPort: "the proxy", contract.AdminPort: "the proxy's admin interface",
	4191: "the proxy", 9901: "the proxy",
}

// livenessProbesProxy finds startup and liveness probes of applications that connect to the proxy. Because of them
// the kubelet restarts the application when the proxy is not healthy.
func livenessProbesProxy(s subject, b *builder) {
	for _, m := range s.members() {
		if knownproxy.OfMesh(m.Name) || m.kind == startup.Init {
			continue
		}
		for _, c := range m.checks() {
			port, field, of := c.port(m)
			target, known := statusPorts[port]
			if c.name == "readinessProbe" || !known || m.declares(port) || strings.HasPrefix(of, "/app-health/") {
				continue
			}
			b.add(clue{code: "liveness-depends-on-proxy", title: fmt.Sprintf("the %s of %s checks %s, not %s", c.name, m.Name, target, m.Name), field: field, evidence: fmt.Sprint(port),
				why: "the kubelet restarts the app when the proxy is slow, restarts or stops first, and does not notice when the app hangs",
				do:  fmt.Sprintf("probe a port of %s; use outrider.dev/depends-on to start it after the proxy", m.Name)})
		}
	}
}
