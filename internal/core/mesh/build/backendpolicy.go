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

// A policySet has the policies of a service's ports, and what is ignored of them.
type policySet struct {
	ports     []mesh.PortPolicy
	conflicts []Conflict
}

// of computes the policies of a service; spec is nil if there is none of the name.
func (x backendPolicies) of(n mesh.Key, spec *mesh.ServiceSpec) *policySet {
	out := &policySet{}
	specs := slices.SortedFunc(maps.Keys(x[n]), olderPolicy)
	var judged *mesh.Service // as far as policies depend on it
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

// maxPolicyConflicts bounds what is reported of one service, which may have any number of policies.
const maxPolicyConflicts = 20

// olderPolicy is the Gateway API's order of conflicting policies (GEP-713): the older one counts,
// then the first by name.
func olderPolicy(x, y *mesh.BackendPolicySpec) int {
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
}

// portPolicies chooses those of each port, of each kind by itself: the one that names the port,
// else the one that names the service. Of two that name the same the older one counts, as a whole.
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
	for _, port := range spec.ServicePorts() {
		if port.Protocol == mesh.UDP || len(out) > 0 && out[len(out)-1].Number == port.Number {
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
