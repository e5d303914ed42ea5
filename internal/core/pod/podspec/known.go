package podspec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/shell"
)

// OurProxy is the name of the proxy container that injection adds.
const OurProxy = contract.ProxyContainer

// A proxy is a container that a mesh or a cloud provider injects. It is recognised by its name. It reports its
// readiness at a port, so that other containers can wait for it although it has no gate.
type proxy struct {
	name  string
	mesh  string
	port  int
	path  string   // empty: it is ready when it accepts connections at the port
	also  []int    // other ports that probes use to check it
	waits []string // command that blocks until it is ready, for a hook; nil if there is none
	drain string   // path at its status port for a POST after which it drains its inbound listeners; empty if there is none

	addressed bool // applications connect to it by its address; nothing redirects connections to it
}

// Sources: istio manifests/charts/istio-control/istio-discovery/files/injection-template.yaml;
// linkerd2 charts/partials/templates/_proxy.tpl; kuma pkg/plugins/runtime/k8s/containers;
// consul-k8s control-plane/connect-inject; Cloud SQL proxy docs/cmd. Istio drains its native sidecar by a preStop hook of its
// own, which calls the same endpoint.
var proxies = []proxy{
	{name: OurProxy, mesh: "Outrider", port: contract.ReadinessPort, path: contract.ReadyPath, also: istioPorts, waits: []string{"outrider-agent", "wait"}},
	{name: "istio-proxy", mesh: "Istio", port: contract.ReadinessPort, path: contract.ReadyPath, also: istioPorts, waits: []string{"pilot-agent", "wait"}, drain: "/drain"},
	{name: "linkerd-proxy", mesh: "Linkerd", port: 4191, path: "/ready", also: []int{4140}, waits: []string{"/usr/lib/linkerd/linkerd-await", "--timeout=2m"}},
	{name: "kuma-sidecar", mesh: "Kuma", port: 9902, path: "/ready", also: []int{9901}, waits: []string{"kuma-dp", "wait", "--url", "http://localhost:9902/ready"}},
	{name: "consul-dataplane", mesh: "Consul", port: 20000, also: []int{19000, 21000}},
	{name: "cloud-sql-proxy", mesh: "Cloud SQL", port: 9090, path: "/startup", waits: []string{"/cloud-sql-proxy", "wait"}, addressed: true},
}

// istioPorts are the other ports of Istio's proxy and of our proxy.
var istioPorts = []int{contract.StatusPort, contract.AdminPort, contract.OutboundPort}

// A waiter is a program that waits for a proxy. It is recognised by the first words of its command line.
type waiter struct {
	words   []string
	proxies []string // it waits for the first of these that is in the pod, or else is expected there
	timeout time.Duration
}

// waiters lists the known programs. They may be used in hooks and in scripts.
var waiters = []waiter{
	{words: []string{"pilot-agent", "wait"}, proxies: []string{"istio-proxy", OurProxy}, timeout: time.Minute},
	{words: []string{"outrider-agent", "wait"}, proxies: []string{OurProxy}},
	{words: []string{"linkerd-await"}, proxies: []string{"linkerd-proxy"}},
	{words: []string{"kuma-dp", "wait"}, proxies: []string{"kuma-sidecar"}},
	{words: []string{"cloud-sql-proxy", "wait"}, proxies: []string{"cloud-sql-proxy"}},
}

func knownProxy(name string) (proxy, bool) {
	if strings.HasPrefix(name, "consul-dataplane-") { // one for each service of the pod; the name of the service follows
		name = "consul-dataplane"
	}
	i := slices.IndexFunc(proxies, func(p proxy) bool { return p.name == name })
	if i < 0 {
		return proxy{}, false
	}
	return proxies[i], true
}

// proxiesAt returns the names of the known proxies that can be probed at a port.
func proxiesAt(port int) []string {
	var out []string
	for _, p := range proxies {
		if p.port == port || slices.Contains(p.also, port) {
			out = append(out, p.name)
		}
	}
	return out
}

// probe returns the readiness probe of the proxy.
func (p proxy) probe() *corev1.Probe {
	if p.path == "" {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(p.port))}}}
	}
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: p.path, Port: intstr.FromInt32(int32(p.port))}}}
}

// url returns the URL of the readiness probe in the pod's network. A port without a path may be bound to the pod's own
// address only: localhost stands for that, too (see ParseAddress in package gate).
func (p proxy) url() string {
	if p.path == "" {
		return fmt.Sprintf("tcp://localhost:%d", p.port)
	}
	return fmt.Sprintf("http://127.0.0.1:%d%s", p.port, p.path)
}

// servers lists names of programs and images that run until they get a signal: proxies, databases, and agents
// that people run next to an app.
var servers = []string{"cloud-sql-proxy", "cloud_sql_proxy", "gce-proxy", "alloydb-auth-proxy", "pgbouncer", "envoy", "nginx", "nginx-unprivileged", "haproxy", "oauth2-proxy",
	"redis", "redis-server", "valkey", "postgres", "mysqld", "mariadb", "mongod", "mongo", "rabbitmq", "memcached", "dockerd",
	"fluent-bit", "fluentd", "filebeat", "promtail", "vector", "telegraf", "statsd-exporter", "opentelemetry-collector", "opentelemetry-collector-contrib", "otelcol", "otel-agent",
	"daprd", "consul-dataplane", "pilot-agent", "linkerd2-proxy", "kuma-dp"}

// IsServer reports whether a container is known to run until it gets a signal. It is recognised by its program,
// or by the image if the pod sets no program.
func IsServer(c *corev1.Container) bool {
	argv := argvOf(c)
	if len(c.Command) == 0 && (len(argv) == 0 || strings.HasPrefix(argv[0], "-") || strings.Contains(argv[0], ":")) {
		return slices.Contains(servers, ImageName(c.Image)) || ImageName(c.Image) == "docker" && strings.HasSuffix(c.Image, "dind")
	}
	calls := shell.Calls(argv)
	if len(calls) == 0 {
		return false
	}
	last := calls[len(calls)-1] // the program that the script runs last
	return last.Final && slices.Contains(servers, last.Program) && !slices.Contains(last.Args, "--version")
}

// IsProxy reports whether the container has the name of a proxy that meshes or cloud providers inject.
func IsProxy(c *corev1.Container) bool {
	_, is := knownProxy(c.Name)
	return is
}
