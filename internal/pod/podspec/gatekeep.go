package podspec

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/contract"
	"outrider.dev/startup"
)

// What a gate takes over from the kubelet. While a command waits, the kubelet must not
// punish it: its startup probe and its postStart hook begin with the command, so the gate
// runs them, and its liveness probe becomes "outrider-agent held", which succeeds until
// then. Without a readiness probe the startup probe stands for readiness.

// defaultGrace is Kubernetes' own, and the gate's.
const defaultGrace = 30

// takeOver moves into the gate's command line what the kubelet would do too early. What
// holds other containers stays: a sidecar's startup probe and hook, and a hook that waits
// for its own container.
func (w *writer) takeOver(c carrier, line *contract.Gate) error {
	plain, n := c.kind == startup.Plain, numbered(c.Container)
	var err error
	switch {
	case c.StartupProbe != nil && (!plain || !answers(c.Container, c.StartupProbe)):
	case c.StartupProbe != nil:
		line.StartupProbe, err = marshal(n.StartupProbe)
		if c.ReadinessProbe == nil {
			c.ReadinessProbe = asReadiness(n.StartupProbe)
		}
		c.StartupProbe = nil
	case c.LivenessProbe != nil && c.LivenessProbe.InitialDelaySeconds > 0:
		// The delay is meant from the command's start.
		line.StartupProbe, err = marshal(afterDelay(c.LivenessProbe.InitialDelaySeconds))
	}
	if err != nil {
		return err
	}
	if plain && w.canMoveHook(c) {
		if line.PostStart, err = marshal(n.Lifecycle.PostStart); err != nil {
			return err
		}
		dropPostStart(c.Container)
	}
	if answers(c.Container, c.LivenessProbe) {
		probe, err := marshal(n.LivenessProbe)
		if err != nil {
			return err
		}
		command := append([]string{AgentPath}, contract.Held{Name: c.Name, Probe: probe}.Args()...)
		c.LivenessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}
	}
	w.describePod(c.Container, line)
	return nil
}

// canMoveHook reports whether the gate can run the postStart hook of c: it does not hold
// other containers, and names no port that c does not have.
func (w *writer) canMoveHook(c carrier) bool {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.TCPSocket != nil {
		return false
	}
	r := reader{pod: w.out, all: carriers(w.out)}
	_, holds := r.waitsForItself(c)
	return !holds && hasPort(c.Container, c.Lifecycle.PostStart.HTTPGet)
}

func marshal(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// dropPostStart takes the hook out, and an empty lifecycle with it.
func dropPostStart(c *corev1.Container) {
	c.Lifecycle.PostStart = nil
	if c.Lifecycle.PreStop == nil && c.Lifecycle.StopSignal == nil {
		c.Lifecycle = nil
	}
}

// describePod adds what the gate needs of the pod, where that is not the default.
func (w *writer) describePod(c *corev1.Container, line *contract.Gate) {
	policy := w.out.Spec.RestartPolicy
	if own := c.RestartPolicy; own != nil {
		policy = corev1.RestartPolicy(*own)
	}
	if policy != corev1.RestartPolicyAlways {
		line.RestartPolicy = string(policy)
	}
	if g := w.out.Spec.TerminationGracePeriodSeconds; g != nil && *g != defaultGrace {
		line.StopGrace = cmp.Or(time.Duration(max(*g, 0))*time.Second, -1)
	}
	line.PreStop = c.Lifecycle != nil && c.Lifecycle.PreStop != nil
}

// unwrap takes our gate off c, and gives back to the kubelet what the gate had taken
// over. It is false if c has none.
func unwrap(c *corev1.Container) bool {
	argv := slices.Concat(c.Command, c.Args)
	if len(argv) == 0 || argv[0] != AgentPath {
		return false
	}
	line, ok := contract.ParseGate(argv[1:])
	if !ok || len(line.Command) == 0 {
		return false
	}
	c.Command, c.Args = line.Command, nil
	var first corev1.Probe
	if json.Unmarshal([]byte(line.StartupProbe), &first) == nil && !isDelay(&first) {
		c.StartupProbe = &first
		if equality.Semantic.DeepEqual(c.ReadinessProbe, asReadiness(&first)) {
			c.ReadinessProbe = nil
		}
	}
	var hook corev1.LifecycleHandler
	if json.Unmarshal([]byte(line.PostStart), &hook) == nil {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		c.Lifecycle.PostStart = &hook
	}
	unwrapLiveness(c)
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, isGateMount)
	if len(c.VolumeMounts) == 0 {
		c.VolumeMounts = nil
	}
	return true
}

// unwrapLiveness gives the liveness probe that a gate runs back to the kubelet.
func unwrapLiveness(c *corev1.Container) {
	p := c.LivenessProbe
	if p == nil || p.Exec == nil || len(p.Exec.Command) == 0 || p.Exec.Command[0] != AgentPath {
		return
	}
	held, _ := contract.ParseHeld(p.Exec.Command[1:])
	var live corev1.Probe
	if json.Unmarshal([]byte(held.Probe), &live) == nil {
		c.LivenessProbe = &live
	}
}

func isGateMount(m corev1.VolumeMount) bool { return m.Name == BinVolume || m.Name == StateVolume }

// Ungated is pod without the gates that [Write] wrote, and without what they need: what a
// gate took over is the kubelet's again. Command and arguments become one list.
func Ungated(pod *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	for _, c := range carriers(out) {
		unwrap(c.Container)
		if usesAgent(c.Container) { // which may hold others besides being gated
			dropPostStart(c.Container)
		}
		c.Container.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, isGateMount)
	}
	out.Spec.Volumes = slices.DeleteFunc(out.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == BinVolume || v.Name == StateVolume })
	return out
}

// usesAgent reports whether c has a hook that runs the copied agent.
func usesAgent(c *corev1.Container) bool {
	return c.Lifecycle != nil && c.Lifecycle.PostStart != nil && c.Lifecycle.PostStart.Exec != nil &&
		len(c.Lifecycle.PostStart.Exec.Command) > 0 && c.Lifecycle.PostStart.Exec.Command[0] == AgentPath
}

// Gated reports whether c runs behind our gate.
func Gated(c *corev1.Container) bool {
	argv := slices.Concat(c.Command, c.Args)
	return len(argv) > 1 && argv[0] == AgentPath && contract.IsGate(argv[1:])
}

// NeedsAgent reports whether c runs the copy of the agent, as its gate or in its hook.
func NeedsAgent(c *corev1.Container) bool { return Gated(c) || usesAgent(c) }

// asReadiness is a startup probe as a readiness probe, which may not have a grace period.
func asReadiness(p *corev1.Probe) *corev1.Probe {
	out := p.DeepCopy()
	out.TerminationGracePeriodSeconds = nil
	return out
}

// afterDelay is a startup probe that succeeds after a delay.
func afterDelay(seconds int32) *corev1.Probe {
	return &corev1.Probe{InitialDelaySeconds: seconds, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{AgentPath, "version"}}}}
}

func isDelay(p *corev1.Probe) bool {
	return p.Exec != nil && slices.Equal(p.Exec.Command, afterDelay(0).Exec.Command)
}

// numbered is c with numbers for the names of ports in its probes and in its postStart hook:
// only the pod's text resolves names. A name that c does not have stays.
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
	if l := out.Lifecycle; l != nil && l.PostStart != nil {
		number(c, l.PostStart.HTTPGet)
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

// answers reports whether c has a probe, and the port that it names. A probe without its port
// never succeeds: nothing can wait for it, and it stays with the kubelet.
func answers(c *corev1.Container, p *corev1.Probe) bool {
	return p != nil && hasPort(c, p.HTTPGet) && (p.TCPSocket == nil || PortNumber(c, p.TCPSocket.Port) > 0)
}

func hasPort(c *corev1.Container, h *corev1.HTTPGetAction) bool {
	return h == nil || PortNumber(c, h.Port) > 0
}
