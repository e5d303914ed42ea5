package build

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// backendPolicies are the BackendPolicies and XBackendTrafficPolicies, by target.
type backendPolicies multimap[mesh.Key, *mesh.BackendPolicySpec]

func (x *backendPolicies) set(p *mesh.BackendPolicySpec, present bool) {
	for _, t := range p.Targets {
		(*multimap[mesh.Key, *mesh.BackendPolicySpec])(x).set(mesh.Key{Kind: mesh.KindService, Namespace: p.Namespace, Name: t.Name}, p, present)
	}
}

// A policySet contains the policies for a service's ports, and reports about those parts of them that are
// ignored.
type policySet struct {
	ports     []mesh.PortPolicy
	conflicts []Conflict
}

// of computes the policies for a service. spec is nil if there is no service with this name.
func (x backendPolicies) of(n mesh.Key, spec *mesh.ServiceSpec) *policySet {
	out := &policySet{}
	specs := slices.SortedFunc(maps.Keys(x[n]), olderPolicy)
	var judged *mesh.Service // has only the fields on which policies depend
	if spec != nil {
		out.ports = portPolicies(n.Name, spec, specs)
		judged = &mesh.Service{Namespace: n.Namespace, Name: n.Name, Ports: spec.ServicePorts(), Headless: spec.Headless, External: spec.External, Policies: out.ports}
	}
	for _, p := range specs {
		for i, t := range p.Targets {
			if t.Name != n.Name {
				continue
			}
			if len(out.conflicts) >= maxPolicyConflicts {
				out.conflicts = append(out.conflicts, Conflict{Severity: contract.WarningPrefix, Object: n,
					Message: "more of its policies have no effect, or not all of it"})
				return out
			}
			out.conflicts = append(out.conflicts, Judge(judged, p, t).conflicts(p, fmt.Sprintf("spec.targetRefs[%d]", i))...)
		}
	}
	return out
}

// maxPolicyConflicts is the maximum number of reports about one service, which may have any number of
// policies.
const maxPolicyConflicts = 20

// olderPolicy orders conflicting policies as the Gateway API does (GEP-713): an older one takes precedence;
// among those of the same age, the first by name.
func olderPolicy(x, y *mesh.BackendPolicySpec) int {
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
}

// portPolicies chooses one policy of each kind for each port: one that names the port, or otherwise one that
// names only the service. If there are several, only the oldest is used, and the others are not merged with
// it.
func portPolicies(service string, spec *mesh.ServiceSpec, specs []*mesh.BackendPolicySpec) []mesh.PortPolicy {
	type place struct {
		kind    mesh.Kind
		section string
	}
	first := map[place]*mesh.BackendPolicySpec{}
	for _, p := range specs {
		for _, t := range p.Targets {
			if at := (place{p.Kind, t.Section}); t.Name == service && first[at] == nil {
				first[at] = p
			}
		}
	}
	var out []mesh.PortPolicy
	for _, port := range mesh.Captured(spec.ServicePorts()) {
		if len(out) > 0 && out[len(out)-1].Number == port.Number {
			continue
		}
		choose := func(kind mesh.Kind) *mesh.BackendPolicySpec {
			return cmp.Or(first[place{kind, port.Name}], first[place{kind, ""}])
		}
		next := mesh.PortPolicy{Number: port.Number}
		if p := choose(mesh.KindBackendPolicy); p != nil {
			next.From, next.BackendPolicy = p.Name, p.Settings
		}
		if p := choose(mesh.KindTrafficPolicy); p != nil {
			next.BudgetFrom, next.Budget = p.Name, p.Settings.Budget
		}
		if next.From != "" || next.BudgetFrom != "" {
			out = append(out, next)
		}
	}
	return out
}
