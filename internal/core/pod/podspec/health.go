package podspec

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// healthURL returns the address at which other containers of the pod learn whether a proxy without a gate is healthy: by
// the container's own probe, else by the documented settings of its mesh, else by its name. It is empty if none of them
// gives an address: a probe by a program or by gRPC cannot be asked from another container.
func healthURL(pod *corev1.Pod, c *corev1.Container) string {
	known, is := knownProxy(c.Name)
	own := numbered(c)
	for _, p := range []*corev1.Probe{own.ReadinessProbe, startupProbe(own)} {
		if !answers(c, p) {
			continue
		}
		if at := probeURL(p); at != "" {
			if is && at == probeURL(known.probe()) {
				return known.url()
			}
			return at
		}
	}
	if at := settingsURL(pod, c.Name); at != "" || !is {
		return at
	}
	return known.url()
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

// settingsURL returns the address that annotations of a mesh move, if its proxy has no probe. Sources: istio.io/latest/docs, resource annotations (status.sidecar.istio.io/port: 0 switches off the agent's answers and the probe, so that
// only the listener for outbound connections shows that the proxy has its configuration), and linkerd.io, proxy configuration.
func settingsURL(pod *corev1.Pod, name string) string {
	switch name {
	case "istio-proxy":
		if pod.Annotations[contract.StatusPortAnnotation] == "0" {
			return fmt.Sprintf("tcp://127.0.0.1:%d", contract.OutboundPort)
		}
	case "linkerd-proxy":
		if n, err := strconv.ParseUint(pod.Annotations["config.linkerd.io/admin-port"], 10, 16); err == nil && n > 0 {
			return fmt.Sprintf("http://127.0.0.1:%d/ready", n)
		}
	}
	return ""
}

// OnlyNamed returns the containers that have nothing of a mesh's proxy but its name: no probe, and neither an argument nor
// an image as that proxy has. Such a container may be another program, and may answer nowhere that it is healthy. The
// value is the address at which it is asked.
func OnlyNamed(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range podContainers(pod) {
		p, is := knownProxy(c.Name)
		if !is || c.Name == OurProxy || c.Image == "auto" || ownProbeOf(c.Container) != nil {
			continue
		}
		said := strings.ToLower(c.Image + " " + strings.Join(c.argv(), " "))
		if !containsAny(said, strings.ToLower(strings.Fields(p.mesh)[0]), "proxyv2", "proxy sidecar") {
			out[c.Name] = healthURL(pod, c.Container)
		}
	}
	return out
}

func containsAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// ownProbeOf returns the readiness probe of c, else its startup probe; nil if it has none that can succeed.
func ownProbeOf(c *corev1.Container) *corev1.Probe {
	for _, p := range []*corev1.Probe{c.ReadinessProbe, startupProbe(c)} {
		if answers(c, p) {
			return p
		}
	}
	return nil
}
