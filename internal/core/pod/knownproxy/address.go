package knownproxy

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
)

// HealthURL returns the address at which other containers of the pod learn whether a proxy without a gate is healthy: by
// the first of the container's own probes that has one, else by the documented settings of its mesh, else by its name. It
// is empty if none of them gives an address: a probe by a program or by gRPC cannot be asked from another container. The
// ports of the probes must be numbers.
func HealthURL(name string, annotations map[string]string, probes ...*corev1.Probe) string {
	known, is := Named(name)
	for _, p := range probes {
		if at := probeURL(p); at != "" {
			if is && at == probeURL(known.Probe()) {
				return known.url()
			}
			return at
		}
	}
	if at := settingsURL(name, annotations); at != "" || !is {
		return at
	}
	return known.url()
}

// Probe returns the readiness probe of the proxy.
func (p Proxy) Probe() *corev1.Probe {
	if p.path == "" {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(p.port))}}}
	}
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: p.path, Port: intstr.FromInt32(int32(p.port))}}}
}

// url returns the URL of the readiness probe in the pod's network. A port without a path may be bound to the pod's own
// address only: localhost stands for that, too (see ParseAddress in package gate).
func (p Proxy) url() string {
	if p.path == "" {
		return fmt.Sprintf("tcp://localhost:%d", p.port)
	}
	return fmt.Sprintf("http://127.0.0.1:%d%s", p.port, p.path)
}

// probeURL returns the address that a probe asks; empty if it asks none.
func probeURL(p *corev1.Probe) string {
	at := func(host string, port int) string { return cmp.Or(host, "localhost") + ":" + strconv.Itoa(port) }
	switch {
	case p.TCPSocket != nil:
		return "tcp://" + at(p.TCPSocket.Host, p.TCPSocket.Port.IntValue())
	case p.HTTPGet == nil:
		return ""
	}
	h := p.HTTPGet
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path} // not a URL: a literal path, as the kubelet takes it
	}
	u = &url.URL{Scheme: strings.ToLower(cmp.Or(string(h.Scheme), "http")), Host: at(h.Host, h.Port.IntValue()), Path: "/" + strings.TrimPrefix(u.Path, "/"), RawQuery: u.RawQuery}
	return u.String()
}

// settingsURL returns the address that annotations of a mesh move, if its proxy has no probe. Sources:
// istio.io/latest/docs, resource annotations (status.sidecar.istio.io/port: 0 switches off the agent's answers and the
// probe, so that only the listener for outbound connections shows that the proxy has its configuration), and linkerd.io,
// proxy configuration.
func settingsURL(name string, annotations map[string]string) string {
	switch name {
	case "istio-proxy":
		if annotations[contract.StatusPortAnnotation] == "0" {
			return fmt.Sprintf("tcp://127.0.0.1:%d", contract.OutboundPort)
		}
	case "linkerd-proxy":
		if n, err := strconv.ParseUint(annotations["config.linkerd.io/admin-port"], 10, 16); err == nil && n > 0 {
			return fmt.Sprintf("http://127.0.0.1:%d/ready", n)
		}
	}
	return ""
}
