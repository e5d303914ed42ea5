package inject

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/pod/podspec"
)

// checkSecurity refuses a pod that the namespace's pod security level would refuse after
// injection: that shows only in events of the ReplicaSet, which are rarely read. It returns
// whether connections are still captured.
func checkSecurity(in input, s settings, r *report) (capture bool, err error) {
	level := in.ns.Labels[contract.PodSecurityLabel]
	if level != "baseline" && level != "restricted" {
		return s.capture, nil
	}
	if in.alongside && s.capture && in.pod.Annotations[contract.Park] != "require" {
		r.warn("the namespace %s has the label %s=%s: early connections are not parked, since outrider-init would need the capability NET_ADMIN", in.ns.Name, contract.PodSecurityLabel, level)
		return false, nil
	}
	hint := "label the namespace " + contract.PodSecurityLabel + "=privileged, or annotate the pod " + contract.Capture + ": none to have order and gate alone"
	for _, need := range []struct {
		needed bool
		what   string
	}{
		{s.capture, "outrider-init needs the capability NET_ADMIN, to capture connections or to park them"},
		{level == "restricted" && s.proxy && in.pod.Annotations[bindKey] == "true", "a proxy with " + bindKey + " runs as root"},
	} {
		if need.needed {
			return s.capture, refuse(PodSecurity, hint, "the namespace %s has the label %s=%s, which refuses the injected pod: %s", in.ns.Name, contract.PodSecurityLabel, level, need.what)
		}
	}
	return s.capture, nil
}

// proxySecurity has the fewest privileges that the proxy needs.
func (in input) proxySecurity(s settings) *corev1.SecurityContext {
	out := in.security(s.uid, s.gid)
	if s.mode == tproxy {
		asRoot(out, "NET_ADMIN")
	}
	if in.pod.Annotations[bindKey] == "true" {
		asRoot(out, "NET_BIND_SERVICE")
	}
	return out
}

// initSecurity: NET_ADMIN suffices to write the rules; the root file system is read-only
// (test/cluster). An init container that only copies needs no capability.
func (in input) initSecurity(s settings) *corev1.SecurityContext {
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

func (in input) security(uid, gid int64) *corev1.SecurityContext {
	seccomp := in.o.Values.Global.Proxy.SeccompProfile.DeepCopy()
	if seccomp == nil {
		seccomp = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return &corev1.SecurityContext{
		RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: new(true),
		Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: seccomp,
	}
}

func warnOfBypasses(in input, s settings, r *report) {
	if !s.capture || !s.proxy {
		return
	}
	for _, b := range podspec.Bypasses(in.pod, s.uid, s.gid) {
		r.warn("%s", b)
	}
}

// OpenShift gives each namespace ranges of user and group IDs, as START/SIZE or START-END,
// and allows its pods no others.
const (
	uidRange = "openshift.io/sa.scc.uid-range"
	gidRange = "openshift.io/sa.scc.supplemental-groups"
)

// rangeOf returns the proxy's user and group: 1337, or the last of the namespace's ranges,
// which no application uses by default (Istio does the same).
func rangeOf(ns Namespace) (uid, gid int64) {
	uid, gid = contract.ProxyUser, contract.ProxyUser
	if last, ok := lastOf(ns.Annotations[uidRange]); ok {
		uid, gid = last, last
	}
	if last, ok := lastOf(ns.Annotations[gidRange]); ok {
		gid = last
	}
	return uid, gid
}

// lastOf returns the last ID of the first of a list of ranges.
func lastOf(text string) (int64, bool) {
	text, _, _ = strings.Cut(text, ",")
	first, second, isSize := strings.Cut(text, "/")
	if !isSize {
		first, second, _ = strings.Cut(text, "-")
	}
	from, err := strconv.ParseInt(first, 10, 64)
	last, err2 := strconv.ParseInt(second, 10, 64)
	if err != nil || err2 != nil || from <= 0 {
		return 0, false
	}
	if isSize {
		last += from - 1
	}
	return last, last >= from && last < 1<<31
}
