package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Where the agent answers for the app: Istio's paths.
const (
	probePath = "/app-health/"
	hookPath  = "/app-lifecycle/"
	probers   = "ISTIO_KUBE_APP_PROBERS"
)

// A prober is a probe as the agent makes it.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// rewriteProbes lets the agent make the app's probes: the kubelet has no certificate of
// the mesh, and its connections would be captured.
func (in *injection) rewriteProbes() error {
	if !in.settings.proxy || in.settings.mode == noMode || !in.settings.probes || !in.rewrites() {
		return nil
	}
	all := map[string]prober{}
	in.each(func(c *corev1.Container) {
		for word, p := range map[string]*corev1.Probe{"readyz": c.ReadinessProbe, "livez": c.LivenessProbe, "startupz": c.StartupProbe} {
			if p == nil {
				continue
			}
			own := prober{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket, GRPC: p.GRPC, TimeoutSeconds: p.TimeoutSeconds}
			if moved := in.take(c, probePath+c.Name+"/"+word, own, all); moved != nil {
				p.ProbeHandler = corev1.ProbeHandler{HTTPGet: moved}
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for word, h := range map[string]*corev1.LifecycleHandler{"prestopz": c.Lifecycle.PreStop, "poststartz": c.Lifecycle.PostStart} {
			if h == nil {
				continue
			}
			if moved := in.take(c, hookPath+c.Name+"/"+word, prober{HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}, all); moved != nil {
				*h = corev1.LifecycleHandler{HTTPGet: moved}
			}
		}
	})
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	in.setProxyEnv(probers, string(text))
	return err
}

func (in *injection) rewrites() bool {
	rewrite := true
	if v := in.o.Values.Injector.RewriteAppHTTPProbe; v != nil {
		rewrite = *v
	}
	text, ok := in.pod.Annotations[rewriteKey]
	if !ok {
		return rewrite
	}
	own, err := strconv.ParseBool(text)
	if err != nil {
		in.idle(rewriteKey, fmt.Sprintf("%q is neither true nor false", text))
		in.warn("annotation %s: %q is neither true nor false: it has no effect", rewriteKey, text)
		return rewrite
	}
	return own
}

// take notes a probe under its path, and returns what the kubelet asks instead; nil if
// the probe stays as it is.
func (in *injection) take(c *corev1.Container, path string, p prober, all map[string]prober) *corev1.HTTPGetAction {
	var port *intstr.IntOrString
	switch {
	case p.HTTPGet != nil:
		p.HTTPGet = p.HTTPGet.DeepCopy()
		port = &p.HTTPGet.Port
	case p.TCPSocket != nil:
		p.TCPSocket = p.TCPSocket.DeepCopy()
		port = &p.TCPSocket.Port
	case p.GRPC != nil:
		number := intstr.FromInt32(p.GRPC.Port)
		port = &number
	default:
		return nil
	}
	if n := portOf(c, *port); n == 0 {
		in.warn("the probe %s asks port %q, which the container %s does not have: it is left as it is", path, port.StrVal, c.Name)
		return nil
	} else if *port = intstr.FromInt32(n); n == in.settings.status || n == readinessPort {
		in.note("the probe %s asks the agent itself: it is left as it is", path)
		return nil
	}
	all[path] = p
	return &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(in.settings.status)}
}

// portOf resolves the name of a port; 0 if the container has none of that name.
func portOf(c *corev1.Container, p intstr.IntOrString) int32 {
	if p.Type == intstr.Int {
		return p.IntVal
	}
	for _, own := range c.Ports {
		if own.Name == p.StrVal {
			return own.ContainerPort
		}
	}
	n, _ := strconv.ParseUint(p.StrVal, 10, 16) // "8080"
	return int32(n)
}

// setProxyEnv sets a variable of the proxy.
func (in *injection) setProxyEnv(name, value string) {
	c := find(in.pod, proxyName)
	if c == nil {
		return
	}
	e := environment{c.Env}
	e.replace(name, value)
	c.Env = e.list
}

// giveBack gives the kubelet the probes again that the agent had.
func giveBack(pod *corev1.Pod, proxy *corev1.Container) error {
	var all map[string]prober
	for _, e := range proxy.Env {
		if e.Name != probers {
			continue
		}
		if err := json.Unmarshal([]byte(e.Value), &all); err != nil {
			return refuse(BadAnnotation, "", "variable %s of %s: %v", probers, proxyName, err)
		}
	}
	for path, p := range all {
		word := path[strings.LastIndex(path, "/")+1:]
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, probePath), hookPath), "/"+word)
		c := find(pod, name)
		if c == nil {
			continue
		}
		handler := corev1.ProbeHandler{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket, GRPC: p.GRPC}
		for w, probe := range map[string]*corev1.Probe{"readyz": c.ReadinessProbe, "livez": c.LivenessProbe, "startupz": c.StartupProbe} {
			if w == word && probe != nil && asksAgent(probe.HTTPGet, path) {
				probe.ProbeHandler = handler
			}
		}
		if c.Lifecycle == nil {
			continue
		}
		for w, h := range map[string]*corev1.LifecycleHandler{"prestopz": c.Lifecycle.PreStop, "poststartz": c.Lifecycle.PostStart} {
			if w == word && h != nil && asksAgent(h.HTTPGet, path) {
				*h = corev1.LifecycleHandler{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}
			}
		}
	}
	return nil
}

func asksAgent(h *corev1.HTTPGetAction, path string) bool { return h != nil && h.Path == path }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
