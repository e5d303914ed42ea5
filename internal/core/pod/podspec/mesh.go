package podspec

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// A Mesh is recognised by its proxy, to which it redirects connections.
type Mesh struct {
	Proxy string
	User  int64    // user and group of the proxy, whose connections are not captured
	Init  []string // the containers that write the capture rules
}

// Meshes lists the known meshes. Sources: istio
// manifests/charts/istio-control/istio-discovery/files/injection-template.yaml; linkerd2
// charts/partials/templates/_proxy.tpl and _proxy-init.tpl.
var Meshes = []Mesh{
	{contract.ProxyContainer, contract.ProxyUser, []string{contract.InitContainer}},
	{"istio-proxy", contract.ProxyUser, []string{"istio-init", "istio-validation"}},
	{"linkerd-proxy", 2102, []string{"linkerd-init", "linkerd-network-validator"}},
	{"kuma-sidecar", 5678, []string{"kuma-init"}},
}

// OfMesh reports whether a mesh has added a container.
func OfMesh(name string) bool {
	return slices.ContainsFunc(Meshes, func(m Mesh) bool { return m.Proxy == name || slices.Contains(m.Init, name) })
}

// A Bypass is a container with the user or the group of the proxy.
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

// Bypasses returns the containers with the user or group of the proxy, whose connections are not captured. A
// container's own setting overrides the pod's. fsGroup does not count: it is only a supplementary group of
// the processes, which the capture does not compare.
func Bypasses(pod *corev1.Pod, user, group int64) []Bypass {
	var out []Bypass
	shared := cmp.Or(pod.Spec.SecurityContext, &corev1.PodSecurityContext{})
	for _, c := range podContainers(pod) {
		if OfMesh(c.Name) {
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

// noteBypasses adds a note about the containers that bypass the proxy that the pod has, or will have.
func (r *reader) noteBypasses() {
	if a := r.pod.Annotations; a[contract.Capture] == "none" || a[contract.InterceptionMode] == "NONE" {
		return
	}
	for _, m := range Meshes {
		if !r.has(m.Proxy) && !slices.Contains(r.Expected, m.Proxy) {
			continue
		}
		for _, b := range Bypasses(r.pod, m.User, m.User) {
			r.Note(b.String())
		}
		return
	}
}
