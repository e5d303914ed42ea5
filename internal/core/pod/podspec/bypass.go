package podspec

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/startup"
)

// A Bypass is a container that runs with the user or the group of the proxy, so that its connections are not
// captured.
type Bypass struct {
	Container string
	Kind      startup.Kind
	Setting   string // runAsUser or runAsGroup
	ID        int64
	Field     string // path in the pod
}

func (b Bypass) String() string {
	return fmt.Sprintf("%s has %s: %d, which is the proxy's: its connections are not captured, so they have no mutual TLS and no policy", b.Container, b.Setting, b.ID)
}

// Bypasses returns the containers of the pod that run with this user or group of the proxy. A container's own
// setting overrides the pod's. fsGroup is ignored: it is only a supplementary group of the processes, and the
// capture rules do not match supplementary groups.
func Bypasses(pod *corev1.Pod, user, group int64) []Bypass {
	var out []Bypass
	shared := cmp.Or(pod.Spec.SecurityContext, &corev1.PodSecurityContext{})
	for _, c := range podContainers(pod) {
		if knownproxy.OfMesh(c.Name) {
			continue
		}
		own := cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
		for _, id := range []struct {
			setting    string
			own, ofPod *int64
			ofProxy    int64
		}{{"runAsUser", own.RunAsUser, shared.RunAsUser, user}, {"runAsGroup", own.RunAsGroup, shared.RunAsGroup, group}} {
			if n := cmp.Or(id.own, id.ofPod); n == nil || *n != id.ofProxy {
				continue
			}
			field := "spec"
			if id.own != nil {
				field = c.field()
			}
			out = append(out, Bypass{c.Name, c.kind, id.setting, id.ofProxy, field + ".securityContext." + id.setting})
			break
		}
	}
	return out
}

// noteBypasses adds notes about containers that bypass the proxy of the pod, or a proxy that the pod is expected
// to get.
func (r *reader) noteBypasses() {
	if a := r.pod.Annotations; a[contract.Capture] == "none" || a[contract.InterceptionMode] == "NONE" {
		return
	}
	for _, m := range knownproxy.Meshes {
		if !r.has(m.Proxy) && !slices.Contains(r.Expected, m.Proxy) {
			continue
		}
		for _, b := range Bypasses(r.pod, m.User, m.User) {
			r.Note(b.String())
		}
		return
	}
}
