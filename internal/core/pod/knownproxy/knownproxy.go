// Package knownproxy knows the proxies that meshes and cloud providers inject into pods: our own, Istio's, Linkerd's,
// Kuma's, Consul's and Cloud SQL's. A proxy is recognised by the name of its container, and what is known of it is data:
// where it answers that it is healthy, which commands wait for it, how it is drained, with which user and which init
// containers its mesh redirects connections.
//
// Its files: knownproxy.go, the proxies and the programs that wait for them; address.go, where a proxy answers; mesh.go,
// the meshes.
//
// The package knows nothing of our gates and hooks: package podspec reads those, and passes the probes that a container
// really has. Results depend on the arguments alone, which are not changed.
package knownproxy

import (
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// A Proxy is a container that a mesh or a cloud provider injects. It is recognised by its name. It reports its
// readiness at a port, so that other containers can wait for it although it has no gate.
type Proxy struct {
	name  string
	mesh  string
	port  int
	path  string   // empty: it is ready when it accepts connections at the port
	also  []int    // other ports that probes use to check it
	Waits []string // command that blocks until it is ready, for a hook; nil if there is none
	Drain string   // path at its status port for a POST after which it drains its inbound listeners; empty if there is none

	addressed bool // applications connect to it by its address; nothing redirects connections to it
}

// Sources: istio manifests/charts/istio-control/istio-discovery/files/injection-template.yaml;
// linkerd2 charts/partials/templates/_proxy.tpl; kuma pkg/plugins/runtime/k8s/containers;
// consul-k8s control-plane/connect-inject; Cloud SQL proxy docs/cmd. Istio drains its native sidecar by a preStop hook of its
// own, which calls the same endpoint.
var proxies = []Proxy{
	{name: contract.ProxyContainer, mesh: "Outrider", port: contract.ReadinessPort, path: contract.ReadyPath, also: istioPorts, Waits: []string{"outrider-agent", "wait"}},
	{name: "istio-proxy", mesh: "Istio", port: contract.ReadinessPort, path: contract.ReadyPath, also: istioPorts, Waits: []string{"pilot-agent", "wait"}, Drain: "/drain"},
	{name: "linkerd-proxy", mesh: "Linkerd", port: 4191, path: "/ready", also: []int{4140}, Waits: []string{"/usr/lib/linkerd/linkerd-await", "--timeout=2m"}},
	{name: "kuma-sidecar", mesh: "Kuma", port: 9902, path: "/ready", also: []int{9901}, Waits: []string{"kuma-dp", "wait", "--url", "http://localhost:9902/ready"}},
	{name: "consul-dataplane", mesh: "Consul", port: 20000, also: []int{19000, 21000}},
	{name: "cloud-sql-proxy", mesh: "Cloud SQL", port: 9090, path: "/startup", Waits: []string{"/cloud-sql-proxy", "wait"}, addressed: true},
}

// istioPorts are the other ports of Istio's proxy and of our proxy.
var istioPorts = []int{contract.StatusPort, contract.AdminPort, contract.OutboundPort}

// Named returns the proxy whose container has that name; false if none is known.
func Named(name string) (Proxy, bool) {
	if strings.HasPrefix(name, "consul-dataplane-") { // one for each service of the pod; the name of the service follows
		name = "consul-dataplane"
	}
	i := slices.IndexFunc(proxies, func(p Proxy) bool { return p.name == name })
	if i < 0 {
		return Proxy{}, false
	}
	return proxies[i], true
}

// Names returns the names of all proxies, ours first.
func Names() []string {
	out := make([]string, 0, len(proxies))
	for _, p := range proxies {
		out = append(out, p.name)
	}
	return out
}

// At returns the names of the proxies that can be probed at a port.
func At(port int) []string {
	var out []string
	for _, p := range proxies {
		if p.port == port || slices.Contains(p.also, port) {
			out = append(out, p.name)
		}
	}
	return out
}

// IsProxy reports whether the container has the name of a proxy that meshes or cloud providers inject.
func IsProxy(c *corev1.Container) bool {
	_, is := Named(c.Name)
	return is
}

// MentionedBy reports whether the image or the command line of c shows the proxy, so that not only the container's name
// does.
func (p Proxy) MentionedBy(c *corev1.Container) bool {
	text := strings.ToLower(strings.Join(slices.Concat([]string{c.Image}, c.Command, c.Args), " "))
	return slices.ContainsFunc([]string{strings.ToLower(strings.Fields(p.mesh)[0]), "proxyv2", "proxy sidecar"}, func(word string) bool {
		return strings.Contains(text, word)
	})
}

// A waiter is a program that waits for a proxy. It is recognised by the first words of its command line.
type waiter struct {
	words   []string
	proxies []string
	timeout time.Duration // its default; 0: no limit
}

// waiters lists the known programs. They may be used in hooks and in scripts.
var waiters = []waiter{
	{words: []string{"pilot-agent", "wait"}, proxies: []string{"istio-proxy", contract.ProxyContainer}, timeout: time.Minute},
	{words: []string{"outrider-agent", "wait"}, proxies: []string{contract.ProxyContainer}},
	{words: []string{"linkerd-await"}, proxies: []string{"linkerd-proxy"}},
	{words: []string{"kuma-dp", "wait"}, proxies: []string{"kuma-sidecar"}},
	{words: []string{"cloud-sql-proxy", "wait"}, proxies: []string{"cloud-sql-proxy"}, timeout: 30 * time.Second},
}

// A Wait describes a program that waits, as its command line says.
type Wait struct {
	Program string        // the first words of the command line
	Proxies []string      // it waits for the first of these that is in the pod, or else is expected there
	Timeout time.Duration // 0: no limit
}

// WaitOf recognises a known program that waits for a proxy, at the beginning of a command line.
func WaitOf(argv []string) (Wait, bool) {
	i := slices.IndexFunc(waiters, func(w waiter) bool { return w.matches(argv) })
	if i < 0 {
		return Wait{}, false
	}
	w := waiters[i]
	return Wait{strings.Join(w.words, " "), w.proxies, w.bound(argv)}, true
}

func (w waiter) matches(argv []string) bool {
	if len(argv) < len(w.words) || path.Base(argv[0]) != w.words[0] {
		return false
	}
	return slices.Equal(argv[1:len(w.words)], w.words[1:])
}

// limits are the options of waiters that set their time limit.
var limits = []string{"--timeout", "-t", "--max", "-m"}

// bound returns the time-out of the command line, else the program's default.
func (w waiter) bound(argv []string) time.Duration {
	for i, a := range argv {
		option, value, ok := strings.Cut(a, "=")
		if !slices.Contains(limits, option) {
			continue
		}
		if !ok && i+1 < len(argv) {
			value, ok = argv[i+1], true
		}
		if d, err := time.ParseDuration(value); ok && err == nil && d > 0 {
			return d
		}
	}
	return w.timeout
}
