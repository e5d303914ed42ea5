package inject

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

const probersEnv = "ISTIO_KUBE_APP_PROBERS"

// A prober holds the parameters with which the agent makes a probe or a hook.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`

	// Held is set if "outrider-agent held" made the probe. While the gate holds the container, the agent then
	// answers the probe by itself.
	Held bool `json:"held,omitempty"`
}

// A handler is a probe or a hook of a container. The agent answers it at a path in Istio's form. In the kubelet's
// requests the pod's probe key follows that path.
type handler struct {
	of    *corev1.Container
	path  string
	probe *corev1.Probe
	hook  *corev1.LifecycleHandler
}

func handlersOf(c *corev1.Container) []handler {
	first := contract.ProbePath + c.Name + "/startupz"
	if podspec.IsStarted(c) {
		first = contract.ProbePath + c.Name + "/" + contract.StartedProbe
	}
	all := []handler{
		{c, contract.ProbePath + c.Name + "/readyz", c.ReadinessProbe, nil},
		{c, contract.ProbePath + c.Name + "/livez", c.LivenessProbe, nil},
		{c, first, c.StartupProbe, nil},
	}
	if l := c.Lifecycle; l != nil {
		all = append(all, handler{c, contract.HookPath + c.Name + "/prestopz", nil, l.PreStop}, handler{c, contract.HookPath + c.Name + "/poststartz", nil, l.PostStart})
	}
	var out []handler
	for _, h := range all {
		if h.probe != nil || h.hook != nil {
			out = append(out, h)
		}
	}
	return out
}

// forGate reports whether the handler is the startup probe that injection added for a gate.
func (h handler) forGate() bool { return strings.HasSuffix(h.path, "/"+contract.StartedProbe) }

// begins reports whether the kubelet starts the next container only after this handler succeeded.
func (h handler) begins() bool {
	return h.probe != nil && h.probe == h.of.StartupProbe || h.hook != nil && h.hook == h.of.Lifecycle.PostStart
}

func (h handler) get() prober {
	if h.probe == h.of.LivenessProbe && h.probe != nil && podspec.IsStarted(h.of) {
		if live := podspec.HeldProbe(h.of); live != nil {
			return prober{HTTPGet: live.HTTPGet, TCPSocket: live.TCPSocket, GRPC: live.GRPC, TimeoutSeconds: h.probe.TimeoutSeconds, Held: true}
		}
	}
	if h.probe != nil {
		return prober{HTTPGet: h.probe.HTTPGet, TCPSocket: h.probe.TCPSocket, GRPC: h.probe.GRPC, TimeoutSeconds: h.probe.TimeoutSeconds}
	}
	return prober{HTTPGet: h.hook.HTTPGet, TCPSocket: h.hook.TCPSocket}
}

func (h handler) set(p prober) {
	if h.probe != nil {
		h.probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket, GRPC: p.GRPC}
	} else {
		*h.hook = corev1.LifecycleHandler{HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}
	}
}

// restore gives the handler the form that it had before injection.
func (h handler) restore(p prober) error {
	h.set(p)
	switch {
	case h.forGate():
		h.probe.ProbeHandler = podspec.Started(h.of.Name)
	case p.Held:
		return podspec.Hold(h.of, h.probe)
	}
	return nil
}

// writeProbes lets the agent make the app's probes, because the kubelet has no certificate of the mesh and its
// connections would be captured. The agent also makes the startup probes that gates answer, even if the setting
// for the app's probes is off: otherwise the kubelet would have to start a process in the container for each of
// them.
func writeProbes(pod *corev1.Pod, in input, s effective, r *verdict.Report) error {
	if !s.proxy || !s.probes {
		return nil
	}
	apps := s.mode != settings.NoMode && rewrites(in, r)
	key := in.probeKey(pod)
	if key != "" && !contract.ValidProbeKey(key) {
		return verdict.Refuse(verdict.InvalidAnnotation, "leave it out: injection writes one", "variable %s of the proxy: want 16 to 128 letters, digits, '-' and '_'", contract.ProbeKey)
	}
	all := takenProbes(pod, s, apps, key, r)
	if len(all) == 0 {
		return nil
	}
	text, err := asJSON(all)
	setProxyEnv(pod, probersEnv, text)
	if key != "" {
		setProxyEnv(pod, contract.ProbeKey, key)
	}
	return err
}

// takenProbes replaces probes in the pod by requests to the agent, and returns them by their paths. If apps is
// false, these are only the probes that gates answer.
func takenProbes(pod *corev1.Pod, s effective, apps bool, key string, r *verdict.Report) map[string]prober {
	all := map[string]prober{}
	plainProxy := slices.ContainsFunc(pod.Spec.Containers, containers.Named(contract.ProxyContainer))
	for _, c := range containers.Authors(pod) {
		first := plainProxy && slices.ContainsFunc(pod.Spec.InitContainers, containers.Named(c.Name))
		for _, h := range handlersOf(c) {
			if !apps && !h.forGate() && !h.get().Held {
				continue
			}
			switch p, ok := proberOf(c, h, s.port, r); {
			case !ok:
			case first && h.begins():
				r.Warn("the probe or hook %s stays the kubelet's: the proxy is a plain container, which starts only when it has succeeded", h.path)
			default:
				all[h.path] = p
				h.set(prober{HTTPGet: &corev1.HTTPGetAction{Path: keyed(h.path, key), Port: intstr.FromInt32(s.port)}})
			}
		}
	}
	return all
}

// writeStopHook adds a preStop hook that lets a native sidecar drain inbound connections as soon as the pod is
// stopped. The kubelet sends SIGTERM to the sidecar only after the apps have ended. Until then, clients with open
// connections would send more requests to an app that is stopping. The hook returns at once. A preStop hook of
// the mesh or the author is kept.
func writeStopHook(pod *corev1.Pod, in input, s effective) {
	c := containers.Find(pod, contract.ProxyContainer)
	if c == nil || !s.proxy || !s.probes || c.RestartPolicy == nil || c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		return
	}
	key := in.probeKey(pod)
	if key != "" {
		setProxyEnv(pod, contract.ProbeKey, key)
	}
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	c.Lifecycle.PreStop = &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: keyed(contract.StopPath, key), Port: intstr.FromInt32(s.port)}}
}

func keyed(path, key string) string {
	if key == "" {
		return path
	}
	return path + "/" + key
}

// probeKey returns the key that the pod's author set as a variable, else the key of an earlier injection (so that
// a second injection changes nothing), else a new key.
func (in input) probeKey(pod *corev1.Pod) string {
	switch set := valueOf(pod, contract.ProbeKey); {
	case set != "":
		return set
	case in.key != "":
		return in.key
	case in.o.ProbeKey == nil:
		return ""
	}
	w := in.workload()
	return in.o.ProbeKey(strings.Join([]string{in.ns.Name, w.APIVersion, w.Kind, w.Name}, "/"))
}

// keyOf returns the key that an earlier injection gave the pod; empty if there is none.
func keyOf(pod *corev1.Pod) string {
	if _, was := pod.Annotations[contract.Status]; was {
		return valueOf(pod, contract.ProbeKey)
	}
	return ""
}

// valueOf returns the value of an environment variable of the proxy; empty if it is not set.
func valueOf(pod *corev1.Pod, name string) string {
	if c := containers.Find(pod, contract.ProxyContainer); c != nil {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// RandomProbeKey returns a new key of 128 bits, for [Options.ProbeKey].
func RandomProbeKey(string) string { return rand.Text() }

// DerivedProbeKey returns a function for [Options.ProbeKey] that always returns the same key for the same
// workload.
func DerivedProbeKey(secret []byte) func(workload string) string {
	return func(workload string) string {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(workload))
		return hex.EncodeToString(mac.Sum(nil)[:16])
	}
}

func rewrites(in input, r *verdict.Report) bool {
	text, ok := in.pod.Annotations[contract.RewriteProbes]
	own, err := strconv.ParseBool(text)
	if ok && err == nil {
		return own
	}
	if ok {
		r.Ignored(contract.RewriteProbes, fmt.Sprintf("%q is neither true nor false", text))
		r.Warn("annotation %s: %q is neither true nor false: it has no effect", contract.RewriteProbes, text)
	}
	mesh := in.o.Values.Injector.RewriteAppHTTPProbe
	return mesh == nil || *mesh
}

// proberOf returns how the agent makes a probe or a hook, with a numeric port. It returns false if the kubelet
// continues to make the probe or hook.
func proberOf(c *corev1.Container, h handler, status int32, r *verdict.Report) (prober, bool) {
	p := h.get()
	var port *intstr.IntOrString
	switch {
	case p.HTTPGet != nil:
		p.HTTPGet = p.HTTPGet.DeepCopy()
		port = &p.HTTPGet.Port
	case p.TCPSocket != nil:
		p.TCPSocket = p.TCPSocket.DeepCopy()
		port = &p.TCPSocket.Port
	case p.GRPC != nil:
		port = new(intstr.FromInt32(p.GRPC.Port))
	case h.forGate():
		return p, true
	default:
		return p, false
	}
	n := containers.PortOf(c, *port)
	switch n {
	case 0:
		r.Warn("the probe %s is for port %q, which the container %s does not have: it is not changed", h.path, port.StrVal, c.Name)
		return p, false
	case status, contract.ReadinessPort:
		r.Note("the probe %s is for the agent itself: it is not changed", h.path)
		return p, false
	}
	*port = intstr.FromInt32(n)
	return p, true
}

func setProxyEnv(pod *corev1.Pod, name, value string) {
	if c := containers.Find(pod, contract.ProxyContainer); c != nil {
		e := containers.Environment{List: c.Env}
		e.Replace(name, value)
		c.Env = e.List
	}
}

// restoreProbes undoes [writeProbes].
func restoreProbes(pod *corev1.Pod) error {
	var all map[string]prober
	if text := valueOf(pod, probersEnv); text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return verdict.Refuse(verdict.InvalidAnnotation, "", "variable %s of %s: %v", probersEnv, contract.ProxyContainer, err)
		}
	}
	key := keyOf(pod)
	for _, c := range containers.Authors(pod) {
		for _, h := range handlersOf(c) {
			p, written := all[h.path]
			if now := h.get().HTTPGet; written && now != nil && now.Path == keyed(h.path, key) {
				if err := h.restore(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
