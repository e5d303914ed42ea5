package build

import (
	"cmp"

	"outrider.dev/internal/core/mesh"
)

// The rules follow Istio's PeerAuthentication
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/):
//   - A policy in the root namespace applies to the mesh, a policy in another namespace to that namespace,
//     and a policy with a selector to the matching workloads in its namespace.
//   - The policy with the narrowest scope is used. It inherits the fields that it does not set.
//   - Only policies with a selector can name ports. These are ports of the workload, not of a service.
//   - Among several policies with the same scope, the oldest is used.
//   - A policy with a selector in the root namespace is ignored.
//   - The default is PERMISSIVE.

// peerAuthentications contains the policies by namespace.
type peerAuthentications multimap[string, *mesh.PolicySpec]

func (x *peerAuthentications) set(p *mesh.PolicySpec, present bool) {
	(*multimap[string, *mesh.PolicySpec])(x).set(p.Namespace, p, present)
}

// apply sets the TLS modes of w and its ports, and adds the ports that a policy names.
func (x peerAuthentications) apply(w *mesh.Workload, root string) {
	everywhere := func(p *mesh.PolicySpec) bool { return len(p.Selector) == 0 }
	mode := cmp.Or(oldest(x[root], everywhere).Mode, mesh.ModePermissive)
	var own mesh.PolicySpec
	if w.Namespace != root {
		mode = cmp.Or(oldest(x[w.Namespace], everywhere).Mode, mode)
		own = oldest(x[w.Namespace], func(p *mesh.PolicySpec) bool { return mesh.Selects(p.Selector, w.Labels) })
		mode = cmp.Or(own.Mode, mode)
	}
	w.TLS = tlsMode(mode)
	for number := range own.Ports {
		if _, declared := w.Port(number); !declared {
			w.Ports = addPort(w.Ports, number, mesh.Unknown)
		}
	}
	for i := range w.Ports {
		w.Ports[i].TLS = tlsMode(cmp.Or(own.Ports[w.Ports[i].Number], mode))
	}
}

// oldest returns the oldest policy that applies. If none does, it returns the zero policy, which sets
// nothing.
func oldest(policies set[*mesh.PolicySpec], applies func(*mesh.PolicySpec) bool) mesh.PolicySpec {
	var out *mesh.PolicySpec
	for p := range policies {
		if applies(p) && (out == nil || cmp.Or(p.Created.Compare(out.Created), cmp.Compare(p.Name, out.Name)) < 0) {
			out = p
		}
	}
	if out == nil {
		return mesh.PolicySpec{}
	}
	return *out
}

func tlsMode(m mesh.Mode) mesh.TLSMode {
	switch m {
	case mesh.ModeStrict:
		return mesh.Strict
	case mesh.ModeDisable:
		return mesh.Disable
	}
	return mesh.Permissive
}
