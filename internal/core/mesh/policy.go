package mesh

import (
	"cmp"
	"slices"
)

// The rules are those of Istio's PeerAuthentication
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/):
//   - a policy of the root namespace holds for the mesh, one of another namespace for it,
//     one with a selector for the workloads of its namespace that match;
//   - the narrower one counts, and what it leaves unset is inherited;
//   - ports are named by policies with a selector only, and are those of the workload;
//   - of several policies for the same the oldest counts;
//   - one of the root namespace with a selector is ignored;
//   - the default is PERMISSIVE.

func (b *Builder) markPolicy(p *PolicySpec) {
	if p.Namespace == b.config.RootNamespace {
		for id := range b.workloads {
			b.staleWorkloads.add(id)
		}
		return
	}
	for id := range b.byNamespace[p.Namespace] {
		b.staleWorkloads.add(id)
	}
}

// applyPolicies sets the TLS modes of w.
func (b *Builder) applyPolicies(w *Workload) {
	everywhere := func(p *PolicySpec) bool { return len(p.Selector) == 0 }
	mode := ModePermissive
	mode = cmp.Or(oldest(b.policies[b.config.RootNamespace], everywhere).Mode, mode)
	var own PolicySpec
	if w.Namespace != b.config.RootNamespace {
		mode = cmp.Or(oldest(b.policies[w.Namespace], everywhere).Mode, mode)
		own = oldest(b.policies[w.Namespace], func(p *PolicySpec) bool { return selects(p.Selector, w.Labels) })
		mode = cmp.Or(own.Mode, mode)
	}
	w.TLS = mode.tls()
	for number := range own.Ports {
		if !slices.ContainsFunc(w.Ports, func(p AppPort) bool { return p.Number == number }) {
			w.Ports = addPort(w.Ports, number, Unknown)
		}
	}
	for i := range w.Ports {
		w.Ports[i].TLS = cmp.Or(own.Ports[w.Ports[i].Number], mode).tls()
	}
}

// oldest returns the oldest policy that applies; the zero policy, which sets nothing, if
// none does.
func oldest(policies set[*PolicySpec], applies func(*PolicySpec) bool) PolicySpec {
	var out *PolicySpec
	for p := range policies {
		if applies(p) && (out == nil || cmp.Or(p.Created.Compare(out.Created), cmp.Compare(p.Name, out.Name)) < 0) {
			out = p
		}
	}
	if out == nil {
		return PolicySpec{}
	}
	return *out
}

func (m Mode) tls() TLSMode {
	switch m {
	case ModeStrict:
		return Strict
	case ModeDisable:
		return Disable
	}
	return Permissive
}

// PortTLS returns the TLS mode of a port of w.
func (w *Workload) PortTLS(number uint16) TLSMode {
	for _, p := range w.Ports {
		if p.Number == number {
			return p.TLS
		}
	}
	return w.TLS
}
