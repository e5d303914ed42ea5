package resource

import (
	"net/netip"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// A family of addresses. Who calls a service by IPv4 is served by its endpoints with IPv4,
// as kube-proxy has it: the application may listen on that family alone, and the caller
// have no other.
//
// In names only the family is written that is not the service's first: so a mesh with one
// family has names without, as Istio's are.
type family string

const (
	first family = "" // the service's own first
	ipv4  family = "IPv4"
	ipv6  family = "IPv6"
)

// written are all that a name may have. The service's first is written too in one that was
// made when another was.
var written = []family{first, ipv4, ipv6}

func familyOf(a netip.Addr) family {
	if a.Unmap().Is4() {
		return ipv4
	}
	return ipv6
}

// firstOf is the family of a service's first address. One without any has IPv4: what its
// endpoints are may change from moment to moment, and names must not.
func firstOf(s *mesh.Service) family {
	if len(s.Addresses) == 0 {
		return ipv4
	}
	return familyOf(s.Addresses[0])
}

// in is the target as it is called by a family; one outside is found by its name.
func (t target) in(f family) target {
	t.family = f
	if f == firstOf(t.service) || t.service.External != "" {
		t.family = first
	}
	return t
}

// called is the family that t is called by.
func (t target) called() family {
	if t.family == first {
		return firstOf(t.service)
	}
	return t.family
}

// families are those of a service's virtual addresses, as a target has them.
func families(s *mesh.Service) []family {
	for _, a := range s.Addresses {
		if f := familyOf(a); f != firstOf(s) {
			return []family{first, f}
		}
	}
	return []family{first}
}

// forCaller is t for a client that does not ask by address: one that has a single family
// can use no other.
func (t target) forCaller(p *xds.Proxy) target {
	if p.OnDemand || t.family != first || len(p.Addresses) == 0 {
		return t
	}
	f := familyOf(p.Addresses[0])
	for _, a := range p.Addresses {
		if familyOf(a) != f {
			return t
		}
	}
	return t.in(f)
}
