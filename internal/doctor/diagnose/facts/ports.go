package facts

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/evidence"
)

// taken match the port on which a program could not listen, in the words of the usual runtimes.
var taken = regexp.MustCompile(`(?i)(?:address (?:is )?(?:already )?in use|EADDRINUSE|already being used|already in use|only one usage of each socket address)`)

// portOf matches a port in such a line.
var portOf = regexp.MustCompile(`(?i)(?:\bport[ =:(]*|:::|[\s\w\])*.]:)(\d{2,5})\b`)

// A listener is a port on which a proxy listens, whatever the pod declares.
type listener struct {
	port  int
	proxy string
	of    string
}

// listeners has the ports of the proxies of meshes. Source: istio.io (application requirements), linkerd.io (proxy
// configuration), kuma.io (data plane proxy), developer.hashicorp.com (consul-dataplane), docs.dapr.io (arguments and
// annotations). Kuma and Consul capture on ports of the same numbers as Istio.
var listeners = []listener{
	{contract.AdminPort, "istio-proxy", "its administration"},
	{contract.OutboundPort, "istio-proxy", "the capture of outbound calls"},
	{contract.DebugPort, "istio-proxy", "its debugging"},
	{contract.InboundPort, "istio-proxy", "the capture of inbound calls"},
	{contract.TunnelPort, "istio-proxy", "HBONE"},
	{contract.StatusPort, "istio-proxy", "its metrics and health"},
	{contract.ReadinessPort, "istio-proxy", "its readiness"},
	{contract.DNSPort, "istio-proxy", "DNS"},
	{contract.PrometheusPort, "istio-proxy", "its statistics"},
	{contract.AdminPort, "outrider-proxy", "its administration"},
	{contract.OutboundPort, "outrider-proxy", "the capture of outbound calls"},
	{contract.InboundPort, "outrider-proxy", "the capture of inbound calls"},
	{contract.RelayOutbound, "outrider-proxy", "its capture"},
	{contract.RelayInbound, "outrider-proxy", "its proofs of the capture"},
	{contract.StatusPort, "outrider-proxy", "its metrics and health"},
	{contract.ReadinessPort, "outrider-proxy", "its readiness"},
	{contract.PrometheusPort, "outrider-proxy", "its statistics"},
	{4140, "linkerd-proxy", "the capture of outbound calls"},
	{4143, "linkerd-proxy", "the capture of inbound calls"},
	{4190, "linkerd-proxy", "taps"},
	{4191, "linkerd-proxy", "its administration"},
	{contract.OutboundPort, "kuma-sidecar", "the capture of outbound calls"},
	{contract.InboundPort, "kuma-sidecar", "the capture of inbound calls"},
	{9901, "kuma-sidecar", "its administration"},
	{9902, "kuma-sidecar", "its readiness"},
	{contract.OutboundPort, "consul-dataplane", "the capture of outbound calls"},
	{19000, "consul-dataplane", "its administration"},
	{20000, "consul-dataplane", "the capture of inbound calls"},
	{3500, "daprd", "its HTTP interface"},
	{50001, "daprd", "its gRPC interface"},
	{50002, "daprd", "calls of other pods"},
}

// ListensFor says what a proxy listens on a port for, whatever the pod declares; empty: it does not, as far as the table has
// it.
func ListensFor(proxy string, port int) string {
	i := slices.IndexFunc(listeners, func(l listener) bool { return l.proxy == proxy && l.port == port })
	if i < 0 {
		return ""
	}
	return listeners[i].of
}

// exposed has the ports at which proxies relay the probes of applications, whose own ports injection replaces by these.
// Source: consul-k8s control-plane/connect-inject/webhook (overwrite of probes), kuma.io (virtual probes), openservicemesh
// (health probes).
var exposed = []struct {
	proxy       string
	first, last int
}{{"consul-dataplane", 20300, 20599}, {"kuma-sidecar", 9000, 9001}, {"envoy", 15901, 15904}}

// Exposes reports whether a proxy relays probes of applications at a port.
func Exposes(proxy string, port int) bool {
	for _, e := range exposed {
		if e.proxy == proxy && port >= e.first && port <= e.last {
			return true
		}
	}
	return false
}

// clock matches a time of the day.
var clock = regexp.MustCompile(`(?:\b|T)\d{1,2}:\d{2}:\d{2}`)

// TakenPort returns the port on which a program could not listen; 0: it ended for another reason, or the port is not named.
func TakenPort(told evidence.Told) int {
	for _, q := range told.Quotes {
		if !taken.MatchString(q.Text) {
			continue
		}
		all := portOf.FindAllStringSubmatch(clock.ReplaceAllString(q.Text, ""), -1)
		slices.Reverse(all) // the line of a source comes first
		for _, m := range all {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < 1<<16 {
				return n
			}
		}
	}
	return 0
}

// IsTaken reports whether a program could not listen, since another one does.
func IsTaken(told evidence.Told) bool { return taken.MatchString(told.Text) }

// usualPorts are those at which programs listen unless they are set to others, by the name of their container or image.
var usualPorts = map[string][]string{
	"daprd":           {"3500", "50001"},
	"cloud-sql-proxy": {"5432", "3306", "1433"},
	"cloudsql-proxy":  {"5432", "3306", "1433"},
	"redis":           {"6379"},
	"postgres":        {"5432"},
	"memcached":       {"11211"},
	"pgbouncer":       {"6432", "5432"},
	"statsd":          {"8125"},
}

// portWords matches settings of ports at which a program listens: --port=5432, -p 6379, tcp:5432, 127.0.0.1:3307, :8080.
var portWords = regexp.MustCompile(`(?i)(?:([a-z_-]*port[a-z_-]*)[= ]|(?:^|[ =,])-p[= ]?|tcp[:=]|(?:^|[ =,/])(?:0\.0\.0\.0|127\.0\.0\.1|localhost|\[::1?\])?:)(\d{2,5})\b`)

// otherPorts are parts of settings of ports at which another program listens.
var otherPorts = []string{"app", "upstream", "target", "backend", "remote"}

// ownPort matches names of variables by which a program is told where to listen, ownAddress their values: a port, with an
// address that is its own.
var (
	ownPort    = regexp.MustCompile(`(?i)^(?:\w+_)?(?:LISTEN|BIND)(?:_?(?:ADDR|ADDRESS|PORT|ON))?$|^(?:(?:HTTP|GRPC|SERVER|WEB|TCP|UVICORN)_)?(?:PORT|ADDR|ADDRESS)$|^ASPNETCORE_(?:URLS|HTTP_PORTS)$`)
	ownAddress = regexp.MustCompile(`^(?:\w+://)?(?:\+|\*|0\.0\.0\.0|127\.0\.0\.1|localhost|\[::1?\])?:?(\d{2,5})/?$`)
)

// PortsOf returns the ports at which a container is set to listen, in the order of its specification.
func PortsOf(spec *corev1.Container) (out []string) {
	for _, p := range spec.Ports {
		out = append(out, fmt.Sprint(p.ContainerPort))
	}
	words := strings.Join(slices.Concat(spec.Command, spec.Args), " ")
	for _, m := range portWords.FindAllStringSubmatch(words, -1) {
		if !slices.ContainsFunc(otherPorts, func(o string) bool { return strings.Contains(strings.ToLower(m[1]), o) }) {
			out = append(out, m[2])
		}
	}
	for _, e := range spec.Env {
		if m := ownAddress.FindStringSubmatch(e.Value); m != nil && ownPort.MatchString(e.Name) {
			out = append(out, m[1])
		}
	}
	if len(out) == 0 || spec.Name == "daprd" {
		image := path.Base(podspec.ImageName(spec.Image))
		for _, name := range []string{spec.Name, image} {
			out = append(out, usualPorts[name]...)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(out, func(p string) bool {
		had := seen[p]
		seen[p] = true
		return had
	})
}

// PortsSet returns the ports at which a container is set to listen by its command line and its environment, whatever it
// declares.
func PortsSet(spec *corev1.Container) []string {
	if spec == nil {
		return nil
	}
	bare := *spec
	bare.Ports = nil
	return PortsOf(&bare)
}

// ListensIn reports whether a container is set to listen at a unix socket, by its command line or by a volume for its folder.
func ListensIn(spec *corev1.Container, socket string) bool {
	folder := path.Dir(socket)
	words := strings.Join(slices.Concat(spec.Command, spec.Args), " ")
	return len(folder) > 1 && strings.Contains(words, folder) || slices.ContainsFunc(spec.VolumeMounts, func(m corev1.VolumeMount) bool { return within(folder, m.MountPath) })
}

// Declares returns another container that declares a port, the proxy first; empty: none does.
func (p *Pod) Declares(port int, but string) string {
	declaring := func(name string) bool {
		spec := p.Spec(name)
		return spec != nil && name != but && podspec.Declares(spec, port)
	}
	if p.Proxy != nil && declaring(p.Proxy.Name) {
		return p.Proxy.Name
	}
	for _, c := range p.Containers {
		if declaring(c.Name) {
			return c.Name
		}
	}
	return ""
}
