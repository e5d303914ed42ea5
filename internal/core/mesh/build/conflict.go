package build

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// A Conflict reports that a valid object is ignored, entirely or in part, because of another object or
// because of its kind.
type Conflict struct {
	Severity string // prefix of the message; empty: the conflict is an error
	Object   mesh.Key
	Field    string // path in the object; empty: the object as a whole
	Message  string
}

// Conflicts returns the conflicts in the last snapshot, sorted by object within each kind of conflict.
func (b *Builder) Conflicts() []Conflict {
	var out []Conflict
	for _, n := range slices.SortedFunc(maps.Keys(b.services.conflicts), mesh.Key.Compare) {
		out = append(out, b.services.conflicts[n]...)
	}
	return slices.Concat(out, b.conflictsOfHosts(), b.authorizations.conflicts(), conflictsOfIgnored(b.current))
}

// conflictsOfHosts returns a conflict for each address of a Host that has a different owner.
func (b *Builder) conflictsOfHosts() (out []Conflict) {
	for _, id := range slices.SortedFunc(maps.Keys(b.workloads.outside), mesh.Key.Compare) {
		for _, a := range b.workloads.spec(id).Addresses {
			if owner := b.addresses.owner(a, id.Namespace); owner != id {
				out = append(out, Conflict{"", id, "spec.address", fmt.Sprintf("%s is ignored: it is the address of %s; give the host another", a, owner)})
			}
		}
	}
	return out
}

// ignoredParts returns a conflict for each part of a service that is ignored.
func (b *Builder) ignoredParts(n mesh.Key, s *service) (out []Conflict) {
	if s.spec == nil {
		return nil
	}
	add := func(field, format string, args ...any) {
		out = append(out, Conflict{"", s.spec.Key(), field, fmt.Sprintf(format, args...)})
	}
	for _, a := range s.spec.Addresses {
		switch owner := b.addresses.owner(a, ""); owner.Kind {
		case mesh.KindPod:
			add("spec.clusterIP", "%s is ignored: it is the address of %s; give the service another", a, owner)
		case mesh.KindService:
			if owner != n {
				add("spec.clusterIP", "%s is ignored: it is also the address of %s, which comes first; give one of the two another", a, owner)
			}
		}
	}
	warn := func(object mesh.Key, fields []mesh.IgnoredField) {
		for _, f := range fields {
			out = append(out, Conflict{contract.WarningPrefix, object, f.Field, f.Why + "; " + f.Instead})
		}
	}
	warn(n, s.spec.Ignored)
	for _, slice := range s.sortedSlices() {
		warn(slice.Key(), slice.Ignored)
	}
	if s.sliced() && !b.sizes.fits(n) {
		add("", "its endpoints are ignored: those of the namespace are %d, each counted for every port of its slice, and %d are read; use fewer ports or services, or other namespaces",
			b.sizes.of[n.Namespace].all, maxMembersOfNamespace)
	}
	if rejected := s.proxyPorts; len(rejected) > 0 {
		more := ""
		if len(rejected) > 1 {
			more = fmt.Sprintf(", and %d more", len(rejected)-1)
		}
		add("", "endpoint %s is ignored%s: %d is a port of the proxy of %s, not of its application",
			netip.AddrPortFrom(rejected[0].Addr, rejected[0].Port), more, rejected[0].Port, rejected[0].workload)
	}
	return append(out, s.routes.conflicts...)
}

// isProxyPort reports whether an endpoint is at a port of the proxy in its workload.
func (b *Builder) isProxyPort(m member) bool {
	if !slices.Contains(mesh.ProxyPorts, m.Port) {
		return false
	}
	w := b.workloads.spec(m.workload)
	return w != nil && w.Proxied
}
