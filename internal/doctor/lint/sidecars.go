package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// slowPeriod is the shortest period of a startup probe, in seconds, that is reported. The kubelet probes once in each
// period and continues after the first success, so a long period delays a start more than the sidecar itself does.
const slowPeriod = 5

// sidecarStart finds sidecars that delay the containers after them too much or not at all. The kubelet starts these
// containers when the sidecar's startup probe has succeeded, or at once if the sidecar has no startup probe.
func sidecarStart(s subject, b *builder) {
	for _, f := range s.reading.Found {
		m, ok := s.member(f.Container)
		if f.Mechanism != startup.Native || !ok || knownproxy.OfMesh(m.Name) || len(f.Edges) == 0 {
			continue
		}
		p := m.StartupProbe
		switch {
		case p != nil && f.Edges[0].After == startup.Healthy && period(p) >= slowPeriod && strings.HasSuffix(f.Evidence.Field, ".startupProbe"):
			after := s.Pod.DeepCopy()
			if c := containerOf(after, m.Name); c != nil {
				c.StartupProbe.FailureThreshold = cmp.Or(p.FailureThreshold, 3) * period(p)
				c.StartupProbe.PeriodSeconds = 1
			}
			b.add(clue{code: "sidecar-slow-start", title: fmt.Sprintf("the startup probe of %s runs every %d s, and the containers after it wait for the next one", m.Name, period(p)),
				field: m.field.plus("startupProbe"), evidence: "startupProbe", why: "the kubelet probes at fixed ticks: each start takes up to one period longer than the sidecar needs",
				do: "set periodSeconds: 1, and failureThreshold so that the limit stays", source: "kubelet v1.34.4 prober/worker.go", fix: s.to(after)})
		case p == nil && f.Edges[0].After == startup.Started && m.serves() && !s.awaited(m.Name):
			b.add(clue{code: "sidecar-not-awaited", title: fmt.Sprintf("%s serves the containers after it, which start before it is ready", m.Name), field: m.field.plus("name"), evidence: m.Name,
				why: "the kubelet goes on as soon as a sidecar without a startup probe runs; its readiness probe delays no container",
				do:  "give it a startup probe with periodSeconds: 1", source: "KEP-753; kubelet v1.34.4 computeInitContainerActions"})
		}
	}
}

func period(p *corev1.Probe) int32 { return cmp.Or(max(p.PeriodSeconds, 0), 10) }

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

var monitoring = regexp.MustCompile(`metrics|health|admin|probe|monitor|prom|debug`)

// serves reports whether other containers of the pod may connect to this one.
func (m member) serves() bool {
	return m.ReadinessProbe != nil || knownproxy.IsProxy(m.Container) || podspec.IsServer(m.Container) ||
		slices.ContainsFunc(m.Ports, func(p corev1.ContainerPort) bool { return !monitoring.MatchString(p.Name) })
}

// awaited reports whether an annotation makes a container wait until this one is healthy.
func (s *subject) awaited(name string) bool {
	return slices.ContainsFunc(s.reading.Requested, func(e startup.Edge) bool { return e.From == name && e.After == startup.Healthy })
}

// initNeverEnds finds init containers that do not end, so that no later container starts.
func initNeverEnds(s subject, b *builder) {
	for _, m := range s.members() {
		isInit := slices.ContainsFunc(knownproxy.Meshes, func(mesh knownproxy.Mesh) bool { return slices.Contains(mesh.Init, m.Name) })
		old := m.kind == startup.Sidecar && s.on < 29
		if m.kind != startup.Init && !old || isInit {
			continue
		}
		c := clue{code: "init-never-ends", field: m.field.plus("name"), evidence: m.Name, source: "KEP-753",
			why: "the kubelet waits for its end before it starts the next container: the pod stays in Init for ever",
			do:  "give it restartPolicy: Always, which makes it a sidecar (Kubernetes 1.29 and later); a webhook with an older API drops the field"}
		switch {
		case old:
			c.title = fmt.Sprintf("%s is a sidecar, which Kubernetes 1.%d takes for an init container that has to end", m.Name, s.on)
			c.do = "list it among the containers, or use Kubernetes 1.29 and later"
		case knownproxy.IsProxy(m.Container) || podspec.IsServer(m.Container):
			c.title = fmt.Sprintf("%s is an init container, and a server that does not end", m.Name)
		case len(m.checks()) > 0:
			c.title = fmt.Sprintf("%s is an init container with probes: it was meant as a sidecar", m.Name)
			c.why = "the API server refuses probes of init containers; without them " + c.why
		default:
			continue
		}
		if s.on >= 29 {
			after := s.Pod.DeepCopy()
			always := corev1.ContainerRestartPolicyAlways
			containerOf(after, m.Name).RestartPolicy = &always
			c.fix = s.to(after)
		}
		b.add(c)
	}
}

var (
	// waited lists ports of servers without which a container usually cannot begin: databases, brokers, dapr, docker.
	waited    = []int{5432, 3306, 6379, 27017, 5672, 9092, 11211, 1433, 1521, 26257, 9042, 8200, 3500, 50001, 2375, 2376}
	localPort = regexp.MustCompile(`(?:localhost|127\.0\.0\.1|\[::1\])[:,](\d{2,5})\b`)
	tools     = regexp.MustCompile(`exporter|metrics|backup|reload|agent|sidecar|logs`)
)

// racesHelper finds regular containers that connect to a server in another regular container, which they need to begin:
// both start at the same time, so the connection may be refused.
func racesHelper(s subject, b *builder) {
	own := s.own()
	p := s.plan.Expand()
	for _, m := range own {
		if tools.MatchString(m.Name) || tools.MatchString(podspec.ImageName(m.Image)) || podspec.IsServer(m.Container) || m.waits() {
			continue
		}
		port, field, evidence := m.localServer()
		i := slices.IndexFunc(own, func(h member) bool { return port != 0 && h.Name != m.Name && podspec.ListensOn(h.Container, port) })
		if i < 0 {
			i, field, evidence = m.socketOf(own)
		}
		if i < 0 || slices.ContainsFunc(p.Edges, func(e startup.Edge) bool { return e.From == own[i].Name && e.To == m.Name }) {
			continue
		}
		h := own[i]
		c := clue{code: "sibling-not-awaited", title: fmt.Sprintf("%s connects to %s, and starts at the same time", m.Name, h.Name), field: field, evidence: evidence,
			why: "plain containers do not wait for each other: if the helper is later, the connection is refused, and the container may be restarted until it is there",
			do:  fmt.Sprintf("let %s wait for it (%s.%s: %s), or make %s a sidecar with a startup probe", m.Name, contract.DependsOn, m.Name, h.Name, h.Name), source: "kubelet v1.34.4 SyncPod"}
		if helper, _ := s.plan.Find(h.Name); helper.Health != startup.NoHealth {
			c.fix = s.requesting(&s.Pod, []startup.Edge{{From: h.Name, To: m.Name, After: startup.Healthy}})
		}
		b.add(c)
	}
}

// waits reports whether the command of a container polls before its work, or a variable makes its image do that. Which
// helper it waits for is not known.
func (m member) waits() bool {
	for _, e := range m.Env {
		if strings.Contains(e.Name, "WAIT_FOR") {
			return true
		}
	}
	script, _ := shell.ScriptOf(m.argv())
	return slices.ContainsFunc(shell.Statements(script.Text), shell.Statement.AwaitsCommand)
}

// socketOf returns the container with the unix socket to which m connects, or -1, and what shows it.
func (m member) socketOf(all []member) (at int, field path, evidence string) {
	for i, h := range all {
		socket := podspec.Socket(h.Container)
		if socket == "" || h.Name == m.Name {
			continue
		}
		for n, e := range m.Env {
			if strings.Contains(e.Value, socket) {
				return i, m.field.plus("env", n, "value"), socket
			}
		}
		for n, word := range m.argv() {
			if strings.Contains(word, "unix://"+socket) || strings.HasSuffix(socket, "/") && strings.Contains(word, socket) {
				return i, m.wordAt(n), socket
			}
		}
	}
	return -1, nil, ""
}

// initBeforeHelper finds init containers that connect to a container which starts later. An init container must end
// before the next container starts.
func initBeforeHelper(s subject, b *builder) {
	all := s.members()
	for _, m := range all {
		port, field, evidence := m.localServer()
		if m.kind != startup.Init || port == 0 || len(field) == 0 || slices.Contains(field, any("env")) || m.offline() || podspec.IsServer(m.Container) {
			continue // a variable alone is not enough: the environment is often shared with the application
		}
		i := slices.IndexFunc(all, func(h member) bool {
			return h.kind != startup.Init && h.Name != m.Name && podspec.ListensOn(h.Container, port)
		})
		if i < 0 || all[i].kind == startup.Sidecar && all[i].at < m.at {
			continue
		}
		h := all[i]
		b.add(clue{code: "start-deadlock", title: fmt.Sprintf("%s connects to %s, which the kubelet starts only after %s has ended", m.Name, h.Name, m.Name), field: field, evidence: evidence,
			why: "init containers run to their end, one after the other: the connection is refused at each attempt, and the pod stays in Init",
			do:  fmt.Sprintf("list %s among the init containers before %s, with restartPolicy: Always and a startup probe", h.Name, m.Name), source: "KEP-753; kubelet v1.34.4 computeInitContainerActions"})
	}
}

// localServer returns the port in waited of the same pod to which the container connects, and the
// field and text that show it: in the command line or the environment. The port is 0 if there is none.
func (m member) localServer() (port int, field path, evidence string) {
	of := func(text string) (int, string) {
		for _, found := range localPort.FindAllStringSubmatch(text, -1) {
			var n int
			if fmt.Sscan(found[1], &n); slices.Contains(waited, n) {
				return n, found[0]
			}
		}
		return 0, ""
	}
	for i, word := range m.argv() {
		if n, text := of(word); n != 0 {
			return n, m.wordAt(i), text
		}
	}
	values := map[string]string{}
	for i, e := range m.Env {
		if n, text := of(e.Value); n != 0 {
			return n, m.field.plus("env", i, "value"), text
		}
		values[e.Name] = e.Value
		if e.Name == "DOCKER_HOST" && shell.IsLocal(e.Value) { // without a port, docker's own
			return waited[len(waited)-2], m.field.plus("env", i, "value"), e.Value
		}
	}
	for i, e := range m.Env {
		name, ok := strings.CutSuffix(e.Name, "HOST")
		if ok && (e.Value == "localhost" || e.Value == "127.0.0.1") {
			if n, _ := of("localhost:" + values[name+"PORT"]); n != 0 {
				return n, m.field.plus("env", i, "value"), e.Value
			}
		}
	}
	return 0, nil, ""
}
