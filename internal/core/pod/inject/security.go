package inject

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// checkSecurity refuses a pod that the namespace's pod security level would refuse after injection. That later
// refusal would only be visible in events of the ReplicaSet, which are rarely read. The result capture is false
// if connections cannot be parked at this level.
func checkSecurity(in input, s effective, r *verdict.Report) (capture bool, err error) {
	level := in.ns.Labels[contract.PodSecurityLabel]
	if level != "baseline" && level != "restricted" {
		return s.capture, nil
	}
	captured := s.capture && !s.byNode() // a container of the pod, not the node, writes the rules
	if in.alongside && captured && in.pod.Annotations[contract.Park] != "require" {
		r.Warn("the namespace %s has the label %s=%s: early connections are not parked, since outrider-init would need the capability NET_ADMIN", in.ns.Name, contract.PodSecurityLabel, level)
		return false, nil
	}
	hint := "have the nodes capture (" + contract.Init + ": node, with outrider-node installed), label the namespace " + contract.PodSecurityLabel + "=privileged, or annotate the pod " + contract.Capture + ": none to have order and gate alone"
	for _, need := range []struct {
		needed bool
		what   string
	}{
		{captured, "outrider-init needs the capability NET_ADMIN, to capture connections or to park them"},
		{level == "restricted" && s.proxy && in.pod.Annotations[settings.BindKey] == "true", "a proxy with " + settings.BindKey + " runs as root"},
		{s.proxy && hostVolumes(in.pod.Annotations[settings.VolumeKey], level == "restricted"), "annotation " + settings.VolumeKey + " has a volume of the node or of a network"},
		{unconfined(in.o.Values.Global.Proxy.SeccompProfile), "the value global.proxy.seccompProfile is Unconfined"},
	} {
		if need.needed {
			return s.capture, verdict.Refuse(verdict.PodSecurity, hint, "the namespace %s has the label %s=%s, which refuses the injected pod: %s", in.ns.Name, contract.PodSecurityLabel, level, need.what)
		}
	}
	return s.capture, nil
}

// hostVolumes reports whether the author's volumes for the proxy include a type that the pod security level
// forbids.
func hostVolumes(text string, restricted bool) bool {
	volumes, err := settings.UserVolumes(cmp.Or(text, "{}")) // CheckAnnotations has checked the same text
	return err == nil && slices.ContainsFunc(volumes, func(v corev1.Volume) bool {
		inPod := v.ConfigMap != nil || v.CSI != nil || v.DownwardAPI != nil || v.EmptyDir != nil || v.Ephemeral != nil ||
			v.PersistentVolumeClaim != nil || v.Projected != nil || v.Secret != nil || v.Image != nil
		return v.HostPath != nil || restricted && !inPod
	})
}

func unconfined(p *corev1.SeccompProfile) bool {
	return p != nil && p.Type == corev1.SeccompProfileTypeUnconfined
}

// proxySecurity returns a security context with the fewest privileges that the proxy needs.
func (in input) proxySecurity(s effective) *corev1.SecurityContext {
	out := in.security(s.uid, s.gid)
	if s.mode == settings.TProxy {
		asRoot(out, "NET_ADMIN")
	}
	if in.pod.Annotations[settings.BindKey] == "true" {
		asRoot(out, "NET_BIND_SERVICE")
	}
	return out
}

// initSecurity returns the security context of outrider-init. NET_ADMIN is enough to write the rules, even with a
// read-only root file system (test/cluster). If outrider-init only copies the agent, it needs no capability.
func (in input) initSecurity(s effective) *corev1.SecurityContext {
	out := in.security(s.uid, s.gid)
	if s.capture {
		asRoot(out, "NET_ADMIN")
		out.RunAsGroup = new(int64(0))
	}
	return out
}

func asRoot(c *corev1.SecurityContext, capabilities ...corev1.Capability) {
	c.RunAsUser, c.RunAsNonRoot = new(int64(0)), new(false)
	c.Capabilities.Add = append(c.Capabilities.Add, capabilities...)
}

// keepRoot restores the user and the capabilities that a container of ours needs, if the author's own container
// has replaced them. Without them the capture would fail at each start, and in TPROXY mode the proxy could not
// listen. A container that needs no capability is not changed.
func keepRoot(c *corev1.Container, needed *corev1.SecurityContext, r *verdict.Report) {
	if len(needed.Capabilities.Add) == 0 {
		return
	}
	is := c.SecurityContext
	if is.RunAsUser == nil || *is.RunAsUser != 0 || is.RunAsNonRoot == nil || *is.RunAsNonRoot {
		r.Warn("%s runs as root, and not as its own securityContext says: it needs %s", c.Name, needed.Capabilities.Add[0])
		is.RunAsUser, is.RunAsNonRoot = needed.RunAsUser, needed.RunAsNonRoot
	}
	for _, capability := range needed.Capabilities.Add {
		if !slices.Contains(is.Capabilities.Add, capability) {
			r.Warn("%s has the capability %s besides those of its own securityContext", c.Name, capability)
			is.Capabilities.Add = append(is.Capabilities.Add, capability)
		}
	}
}

func (in input) security(uid, gid int64) *corev1.SecurityContext {
	seccomp := in.o.Values.Global.Proxy.SeccompProfile.DeepCopy()
	if seccomp == nil {
		seccomp = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return &corev1.SecurityContext{
		RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: new(uid != 0),
		Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: seccomp,
	}
}

func warnOfBypasses(in input, s effective, r *verdict.Report) {
	if !s.capture || !s.proxy {
		return
	}
	for _, b := range podspec.Bypasses(in.pod, s.uid, s.gid) {
		r.Warn("%s", b)
	}
}
