package podspec

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// A gate takes some work over from the kubelet. While the command waits, the kubelet must not restart the
// container, and the startup probe and the postStart hook must not begin before the command starts. So the gate
// runs these two. The kubelet's startup probe is replaced by "outrider-agent started", which succeeds when the
// command has started up: until then the kubelet runs no other probe of the container.
//
// In two cases that is not possible, and the liveness probe is replaced by "outrider-agent held" instead. First,
// a sidecar: a startup probe would also hold back the containers after it. Second, a container with a delayed
// liveness probe: the gate must count that delay from the start of the command, but a startup probe that lasts as
// long would also delay the readiness probe.

// defaultGrace is the default grace period of Kubernetes and of the gate, in seconds.
const defaultGrace = 30

// takeOver moves work that the kubelet would do too early into the gate's command line. Probes and hooks that
// hold back other containers remain with the kubelet: the startup probe and the hook of a sidecar, and a hook
// that waits for its own container.
func (w *writer) takeOver(c podContainer, line *contract.Gate) (err error) {
	plain, n := c.kind == startup.Plain, numbered(c.Container)
	held := !plain
	switch {
	case !plain:
	case answers(c.Container, c.StartupProbe):
		if line.StartupProbe, err = marshal(n.StartupProbe); err != nil {
			return err
		}
		c.StartupProbe = startedProbe(c.Name)
	case c.StartupProbe == nil && c.LivenessProbe != nil:
		if delay := c.LivenessProbe.InitialDelaySeconds; delay > 0 {
			line.LivenessDelay, held = time.Duration(delay)*time.Second, true
		}
		c.StartupProbe = startedProbe(c.Name)
	}
	if plain && w.canMoveHook(c) {
		if line.PostStart, err = marshal(n.Lifecycle.PostStart); err != nil {
			return err
		}
		DropPostStart(c.Container)
	}
	if held && answers(c.Container, c.LivenessProbe) {
		if err := Hold(c.Container, n.LivenessProbe); err != nil {
			return err
		}
	}
	w.describePod(c.Container, line)
	return nil
}

// startedProbe returns the startup probe that the kubelet runs while the gate runs the container's own. Its
// failures have no limit, since only the timeout of an edge may end a wait. A run of the probe blocks until the
// gate opens and then succeeds, so its long timeout delays nothing and only keeps one process alive.
func startedProbe(container string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: math.MaxInt32, ProbeHandler: Started(container)}
}

// Started returns the handler of the startup probe that a gated container has for the kubelet.
func Started(container string) corev1.ProbeHandler {
	return agentProbe(contract.Started{Name: container}.Args())
}

func agentProbe(args []string) corev1.ProbeHandler {
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: append([]string{AgentPath}, args...)}}
}

// IsStarted reports whether the startup probe of a container was replaced by one that the gate answers, through
// the copied agent or through the proxy's agent.
func IsStarted(c *corev1.Container) bool {
	switch p := c.StartupProbe; {
	case p == nil:
		return false
	case p.HTTPGet != nil:
		return strings.HasPrefix(p.HTTPGet.Path, contract.ProbePath+c.Name+"/"+contract.StartedProbe)
	default:
		args, ok := agentArgs(p)
		if ok {
			_, ok = contract.ParseStarted(args)
		}
		return ok
	}
}

// agentArgs returns the arguments of a probe that runs the copied agent; false if it runs something else.
func agentArgs(p *corev1.Probe) ([]string, bool) {
	if p.Exec == nil || len(p.Exec.Command) == 0 || p.Exec.Command[0] != AgentPath {
		return nil, false
	}
	return p.Exec.Command[1:], true
}

// Hold replaces the liveness probe of c by one that succeeds while the gate holds c. After that it has
// the result of the given probe, whose ports must be numbers.
func Hold(c *corev1.Container, probe *corev1.Probe) error {
	text, err := marshal(probe)
	c.LivenessProbe.ProbeHandler = agentProbe(contract.Held{Name: c.Name, Probe: text}.Args())
	return err
}

// HeldProbe returns the liveness probe that c had before [Hold]; nil if Hold did not replace it.
func HeldProbe(c *corev1.Container) *corev1.Probe {
	if c.LivenessProbe == nil {
		return nil
	}
	args, ok := agentArgs(c.LivenessProbe)
	if !ok {
		return nil
	}
	held, _ := contract.ParseHeld(args)
	return decoded(held.Probe)
}

// decoded returns the probe that is encoded as JSON in an argument; nil if there is none.
func decoded(text string) *corev1.Probe {
	var p corev1.Probe
	if json.Unmarshal([]byte(text), &p) != nil {
		return nil
	}
	return &p
}

// startupProbe returns the startup probe of c, or the one that its gate runs in place of the kubelet.
func startupProbe(c *corev1.Container) *corev1.Probe {
	if !IsStarted(c) {
		return c.StartupProbe
	}
	line, _ := gateLine(c)
	return decoded(line.StartupProbe)
}

// gateLine returns the parsed command line of our gate in c; false if c has no gate.
func gateLine(c *corev1.Container) (contract.Gate, bool) {
	if argument(c, 0) != AgentPath {
		return contract.Gate{}, false
	}
	line, ok := contract.ParseGate(argvOf(c)[1:])
	return line, ok && len(line.Command) > 0
}

// canMoveHook reports whether the gate can run the postStart hook of c. The hook must not hold back other
// containers, and it must not use a port name that c does not declare.
func (w *writer) canMoveHook(c podContainer) bool {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.TCPSocket != nil {
		return false
	}
	r := emptyReader(w.out)
	_, holds := r.waitsForItself(c)
	return !holds && hasPort(c.Container, c.Lifecycle.PostStart.HTTPGet)
}

func marshal(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// DropPostStart removes the postStart hook, and the lifecycle if it is then empty.
func DropPostStart(c *corev1.Container) {
	c.Lifecycle.PostStart = nil
	dropEmptyLifecycle(c)
}

// describePod adds those settings of the pod to the gate's command line that differ from the gate's defaults.
func (w *writer) describePod(c *corev1.Container, line *contract.Gate) {
	policy := w.out.Spec.RestartPolicy
	if own := c.RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	if policy != corev1.RestartPolicyAlways {
		line.RestartPolicy = string(policy)
	}
	line.StopGrace = w.stopGrace()
	line.PreStop = c.Lifecycle != nil && c.Lifecycle.PreStop != nil
}

// stopGrace returns the pod's grace period for a command line of the agent; zero, which omits the flag, is the default.
func (w *writer) stopGrace() time.Duration {
	if g := Grace(w.out); g != defaultGrace*time.Second {
		return cmp.Or(g, -1)
	}
	return 0
}

// Grace returns the pod's grace period, 0 at least and 68 years at most.
func Grace(pod *corev1.Pod) time.Duration {
	seconds := int64(defaultGrace)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = min(max(*given, 0), math.MaxInt32)
	}
	return time.Duration(seconds) * time.Second
}

// unwrap removes our gate from c and restores what the gate had taken over from the kubelet. It returns false if
// c has no gate.
func unwrap(c *corev1.Container) bool {
	line, ok := gateLine(c)
	if !ok {
		return false
	}
	c.Command, c.Args = line.Command, nil
	giveBack(c, line)
	dropGateMounts(c)
	return true
}

// giveBack restores the probes and the hook of c from the gate's command line.
func giveBack(c *corev1.Container, line contract.Gate) {
	// Earlier versions of Outrider wrote no startup probe, or one that always succeeds to delay a liveness probe.
	// They also gave a container without a readiness probe a copy of its startup probe. That copy is kept,
	// because it may be the author's own probe.
	if first := decoded(line.StartupProbe); IsStarted(c) || first != nil && !isDelay(first) {
		c.StartupProbe = first
	}
	var hook corev1.LifecycleHandler
	if json.Unmarshal([]byte(line.PostStart), &hook) == nil {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		c.Lifecycle.PostStart = &hook
	}
	if live := HeldProbe(c); live != nil {
		c.LivenessProbe = live
	}
}

func isDelay(p *corev1.Probe) bool {
	args, ok := agentArgs(p)
	return ok && slices.Equal(args, []string{"version"})
}

// dropGateMounts removes the mounts of our volumes from c.
func dropGateMounts(c *corev1.Container) {
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, isGateMount)
	if len(c.VolumeMounts) == 0 {
		c.VolumeMounts = nil
	}
}

func isGateMount(m corev1.VolumeMount) bool { return m.Name == BinVolume || m.Name == StateVolume }

// Ungated returns a copy of the pod without the gates that [Write] added, and without their mounts and volumes.
// What the gates had taken over from the kubelet is restored. Command and arguments become one list.
func Ungated(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	withoutNodeGates(out)
	for _, c := range podContainers(out) {
		unwrap(c.Container)
		if usesAgent(c.Container) { // such a hook can exist with or without a gate: it holds back other containers
			DropPostStart(c.Container)
		}
		dropStopHook(c.Container)
		dropGateMounts(c.Container)
	}
	out.Spec.Volumes = slices.DeleteFunc(out.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == BinVolume || v.Name == StateVolume })
	return out
}

// usesAgent reports whether c has a postStart hook that runs the copied agent.
func usesAgent(c *corev1.Container) bool {
	return c.Lifecycle != nil && c.Lifecycle.PostStart != nil && c.Lifecycle.PostStart.Exec != nil &&
		len(c.Lifecycle.PostStart.Exec.Command) > 0 && c.Lifecycle.PostStart.Exec.Command[0] == AgentPath
}

// Gated reports whether our gate wraps the command of c.
func Gated(c *corev1.Container) bool {
	return argument(c, 0) == AgentPath && contract.IsGate([]string{argument(c, 1)})
}

// NeedsAgent reports whether c runs the copied agent, as a gate or in a hook.
func NeedsAgent(c *corev1.Container) bool { return Gated(c) || usesAgent(c) || StaysUntilEnd(c) }

// numbered returns a copy of c in whose probes and hooks the names of ports are replaced by numbers,
// because the agent cannot resolve them. A name that c does not declare is kept.
func numbered(c *corev1.Container) *corev1.Container {
	out := c.DeepCopy()
	for _, p := range []*corev1.Probe{out.StartupProbe, out.LivenessProbe, out.ReadinessProbe} {
		if p != nil {
			number(c, p.HTTPGet)
			if t := p.TCPSocket; t != nil {
				t.Port = numberOf(c, t.Port)
			}
		}
	}
	if l := out.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				number(c, h.HTTPGet)
			}
		}
	}
	return out
}

func number(c *corev1.Container, h *corev1.HTTPGetAction) {
	if h != nil {
		h.Port = numberOf(c, h.Port)
	}
}

func numberOf(c *corev1.Container, p intstr.IntOrString) intstr.IntOrString {
	if n := PortNumber(c, p); n > 0 {
		return intstr.FromInt32(int32(n))
	}
	return p
}

// answers reports whether the probe p is present and c declares its port. A probe whose port name is not declared
// never succeeds, so nothing can wait for it, and the gate does not take it over.
func answers(c *corev1.Container, p *corev1.Probe) bool {
	return p != nil && hasPort(c, p.HTTPGet) && (p.TCPSocket == nil || PortNumber(c, p.TCPSocket.Port) > 0)
}

func hasPort(c *corev1.Container, h *corev1.HTTPGetAction) bool {
	return h == nil || PortNumber(c, h.Port) > 0
}
