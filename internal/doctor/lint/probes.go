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
	"outrider.dev/internal/doctor"
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

// probeOfLoopback finds probes and hooks that name the loopback interface. The kubelet connects from the node, whose
// loopback interface is not the pod's, unless the pod has the node's network or injection turns the probe into one that the
// agent makes.
func probeOfLoopback(s subject, b *builder) {
	if s.Pod.Spec.HostNetwork {
		return
	}
	run := s.asRun()
	for _, m := range s.members() {
		as := containerOf(run, m.Name)
		if as == nil {
			continue
		}
		stays := (member{Container: as}).handlers()
		for i, h := range m.handlers() {
			if host, at := h.host(); loopback(host) && i < len(stays) && stays[i].still(host) {
				b.add(clue{code: "probe-host-loopback", title: fmt.Sprintf("the %s of %s connects to %s of the node, not of the pod", h.name, m.Name, host),
					field: m.field.plus(h.at...).plus(at, "host"), evidence: host,
					why:    "the kubelet makes the connection in the node's network: nothing listens there, or another program does",
					do:     "leave host out: it is the pod's own IP. The program must listen on that, too; if it listens on localhost only, use exec",
					source: "kubernetes.io/docs, Configure Probes: host"})
			}
		}
	}
}

// A handler is the action of a probe or a hook, with the path of its field.
type handler struct {
	name string
	at   path
	corev1.ProbeHandler
}

// handlers returns the handlers of a container, always in the same order, also those that are not set.
func (m member) handlers() []handler {
	var out []handler
	for _, c := range []check{{"startupProbe", m.StartupProbe}, {"livenessProbe", m.LivenessProbe}, {"readinessProbe", m.ReadinessProbe}} {
		h := handler{name: c.name, at: path{c.name}}
		if c.Probe != nil {
			h.ProbeHandler = c.ProbeHandler
		}
		out = append(out, h)
	}
	hooks := map[string]*corev1.LifecycleHandler{}
	if l := m.Lifecycle; l != nil {
		hooks["postStart"], hooks["preStop"] = l.PostStart, l.PreStop
	}
	for _, name := range []string{"postStart", "preStop"} {
		h := handler{name: name, at: path{"lifecycle", name}}
		if l := hooks[name]; l != nil {
			h.ProbeHandler = corev1.ProbeHandler{HTTPGet: l.HTTPGet, TCPSocket: l.TCPSocket}
		}
		out = append(out, h)
	}
	return out
}

// host returns the host that a handler names, and the field with it.
func (h handler) host() (host, field string) {
	switch {
	case h.HTTPGet != nil:
		return h.HTTPGet.Host, "httpGet"
	case h.TCPSocket != nil:
		return h.TCPSocket.Host, "tcpSocket"
	}
	return "", ""
}

func (h handler) still(host string) bool {
	is, _ := h.host()
	return is == host
}

func loopback(host string) bool { return host != "" && doctor.Destination{Host: host}.Loopback() }
