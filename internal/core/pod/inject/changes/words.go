package changes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/podspec"
)

// A gate runs a command as one list of words, and the agent probes ports by number. So injection joins the
// author's command and args, and replaces names of ports. That does not change the meaning, but the original form
// is restored for people who read the manifest after an uninjection.

// KeepWords records the args and the port names of the given pod that the written pod no longer has.
func (o *Overrides) KeepWords(given, written *corev1.Pod) {
	for _, c := range containers.Authors(given) {
		now := containers.Find(written, c.Name)
		if now == nil {
			continue
		}
		if podspec.Gated(now) {
			if o.Args == nil {
				o.Args = map[string]int{}
			}
			o.Args[c.Name] = len(c.Args)
		}
		ports := portsOf(now)
		for handler, port := range portsOf(c) { // any order: into a map
			if is := ports[handler]; port.Type == intstr.String && (is == nil || *is != *port) {
				setIn(&o.Ports, c.Name+"/"+handler, port.StrVal)
			}
		}
	}
}

// restoreWords restores what KeepWords recorded. If a command has become shorter or a port has another number, it
// was changed after the injection, so it is left as it is.
func (o *Overrides) restoreWords(pod *corev1.Pod) {
	for _, c := range containers.Authors(pod) {
		if n := o.Args[c.Name]; n > 0 && len(c.Args) == 0 && n <= len(c.Command) {
			at := len(c.Command) - n
			c.Command, c.Args = slices.Clip(c.Command[:at]), slices.Clone(c.Command[at:])
		}
		for handler, port := range portsOf(c) { // any order: each is changed by itself
			name := intstr.FromString(o.Ports[c.Name+"/"+handler])
			if name.StrVal != "" && port.Type == intstr.Int && containers.PortOf(c, name) == port.IntVal {
				*port = name
			}
		}
	}
}

// KeepHooks records the proxies of other meshes to which injection added a postStart hook that runs the proxy's
// own program to wait. Nothing in the pod distinguishes such a hook from a hook that the author wrote.
func (o *Overrides) KeepHooks(given, written *corev1.Pod) {
	for _, c := range containers.Authors(written) {
		was := containers.Find(given, c.Name)
		if hookOf(c) != nil && was != nil && hookOf(was) == nil && (hookOf(c).Exec == nil || hookOf(c).Exec.Command[0] != contract.AgentPath) {
			o.Hooks = append(o.Hooks, c.Name)
		}
	}
}

func (o *Overrides) restoreHooks(pod *corev1.Pod) {
	for _, name := range o.Hooks {
		if c := containers.Find(pod, name); c != nil && hookOf(c) != nil {
			podspec.DropPostStart(c)
		}
	}
}

func hookOf(c *corev1.Container) *corev1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PostStart
}

// unknownWords returns a message for each container whose gate was injected by an earlier version of Outrider.
// That version did not record how many words of the command were args.
func (o *Overrides) unknownWords(pod *corev1.Pod) (out []string) {
	for _, c := range containers.Authors(pod) {
		if _, known := o.Args[c.Name]; podspec.Gated(c) && !known {
			out = append(out, fmt.Sprintf("command and args of %s become one command: the version that injected the pod did not record which words were args", c.Name))
		}
	}
	return out
}

// portsOf returns, for each probe and hook of a container, the port to which it connects.
func portsOf(c *corev1.Container) map[string]*intstr.IntOrString {
	out := map[string]*intstr.IntOrString{}
	add := func(handler string, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
		if get != nil {
			out[handler] = &get.Port
		} else if socket != nil {
			out[handler] = &socket.Port
		}
	}
	for handler, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "readinessProbe": c.ReadinessProbe, "livenessProbe": c.LivenessProbe} { // any order: into a map
		if p != nil {
			add(handler, p.HTTPGet, p.TCPSocket)
		}
	}
	if l := c.Lifecycle; l != nil {
		for handler, h := range map[string]*corev1.LifecycleHandler{"postStart": l.PostStart, "preStop": l.PreStop} { // any order: into a map
			if h != nil {
				add(handler, h.HTTPGet, h.TCPSocket)
			}
		}
	}
	return out
}
