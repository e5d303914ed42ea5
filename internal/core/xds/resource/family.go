package resource

import (
	"net/netip"
	"strings"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// A family of addresses. A connection to an IPv4 address of a service goes to an IPv4
// endpoint, as with kube-proxy: the application may listen on that family alone, and the
// client may have no other.
//
// Names contain the family only if it is not the service's primary one: so in a mesh with
// one family they are Istio's.
type family string

const (
	primary family = "" // that of the service's first address
	ipv4    family = "IPv4"
	ipv6    family = "IPv6"
)

// allFamilies may occur in a name. The primary one occurs by its own name too, if the name
// was made while the other family was the primary one.
var allFamilies = []family{primary, ipv4, ipv6}

// familyNamed returns the family of a name in any case; the primary one if it has none.
func familyNamed(name string) family {
	for _, f := range allFamilies {
		if strings.EqualFold(name, string(f)) {
			return f
		}
	}
	return primary
}

func familyOf(a netip.Addr) family {
	if a.Unmap().Is4() {
		return ipv4
	}
	return ipv6
}

// primaryOf returns the family of a service's first address. It is IPv4 without any: the
// endpoints may change at any moment, and names must not.
func primaryOf(s *mesh.Service) family {
	if len(s.Addresses) == 0 {
		return ipv4
	}
	return familyOf(s.Addresses[0])
}

// withFamily returns the target as it is reached by a family. An external one has none.
func (t target) withFamily(f family) target {
	t.family = f
	if f == primaryOf(t.service) || t.service.External != "" {
		t.family = primary
	}
	return t
}

// effectiveFamily is the family by which t is reached.
func (t target) effectiveFamily() family {
	if t.family == primary {
		return primaryOf(t.service)
	}
	return t.family
}

// forProxy returns t for a gRPC client, which does not subscribe by address: if it has a single
// family it can use no other.
func (t target) forProxy(p *xds.Proxy) target {
	if !p.GRPC || t.family != primary || len(p.Addresses) == 0 {
		return t
	}
	f := familyOf(p.Addresses[0])
	for _, a := range p.Addresses {
		if familyOf(a) != f {
			return t
		}
	}
	return t.withFamily(f)
}
