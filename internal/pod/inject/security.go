package inject

import (
	"strconv"
	"strings"
)

// enforceLabel is the namespace's pod security level (Pod Security Admission).
const enforceLabel = "pod-security.kubernetes.io/enforce"

// checkSecurity refuses what the namespace would refuse anyway: a pod that the API
// server refuses shows in events of its ReplicaSet only, where nobody looks.
func (in *injection) checkSecurity() error {
	level := in.ns.Labels[enforceLabel]
	if level != "baseline" && level != "restricted" {
		return nil
	}
	if in.beside && in.settings.capture && in.pod.Annotations[parkKey] != "require" {
		in.settings.capture = false
		in.warn("the namespace %s has the label %s=%s: early connections are not parked, since outrider-init would need the capability NET_ADMIN", in.ns.Name, enforceLabel, level)
	}
	hint := "label the namespace " + enforceLabel + "=privileged, or annotate the pod " + captureKey + ": none to have order and gate alone"
	for _, need := range []struct {
		needed bool
		what   string
	}{
		{in.settings.capture, "outrider-init needs the capability NET_ADMIN, to capture connections or to park them"},
		{in.settings.proxy && in.settings.mode == tproxy, "a proxy with interceptionMode TPROXY needs NET_ADMIN"},
		{level == "restricted" && in.settings.proxy && in.pod.Annotations[bindKey] == "true", "a proxy with " + bindKey + " runs as root"},
	} {
		if need.needed {
			return refuse(PodSecurity, hint, "the namespace %s has the label %s=%s, which refuses the injected pod: %s", in.ns.Name, enforceLabel, level, need.what)
		}
	}
	return nil
}

// OpenShift gives each namespace ranges of user and group IDs, as START/SIZE or
// START-END, and lets pods run in them only.
const (
	uidRange = "openshift.io/sa.scc.uid-range"
	gidRange = "openshift.io/sa.scc.supplemental-groups"
)

// ranged is the user and the group of the proxy: 1337, or the last of the namespace's
// ranges, which no application uses by default (Istio does the same).
func ranged(ns Namespace) (uid, gid int64) {
	uid, gid = proxyUser, proxyUser
	if last, ok := lastOf(ns.Annotations[uidRange]); ok {
		uid, gid = last, last
	}
	if last, ok := lastOf(ns.Annotations[gidRange]); ok {
		gid = last
	}
	return uid, gid
}

// lastOf reads the first of a list of ranges.
func lastOf(text string) (int64, bool) {
	if text == "" {
		return 0, false
	}
	text, _, _ = strings.Cut(text, ",")
	first, second, isSize := strings.Cut(text, "/")
	if !isSize {
		first, second, _ = strings.Cut(text, "-")
	}
	from, err := strconv.ParseInt(first, 10, 64)
	n, err2 := strconv.ParseInt(second, 10, 64)
	if err != nil || err2 != nil || from <= 0 {
		return 0, false
	}
	last := n
	if isSize {
		last = from + n - 1
	}
	return last, last >= from && last < 1<<31
}
