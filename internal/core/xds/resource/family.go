package resource

import (
	"net/netip"
	"strings"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// A family is a family of addresses. A connection to a service's IPv4 address goes to an IPv4 endpoint,
// as with kube-proxy, because the application may only listen on that family, and the client may have
// no other.
//
// Names contain the family only if it is not the service's primary one, so in a mesh with one family
// they are the same as Istio's.
type family string

const (
	primary family = "" // the family of the service's first address
	ipv4    family = "IPv4"
	ipv6    family = "IPv6"
)

// allFamilies are the families that may occur in a name. A name may contain the primary one if it was
// made while the other family was the primary one.
var allFamilies = []family{primary, ipv4, ipv6}

// familyNamed returns the family that a name contains, in upper or lower case, or else the primary one.
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

// primaryOf returns the family of a service's first address. Without an address it is IPv4 and does not
// depend on the endpoints: these may change at any time, but names must not.
func primaryOf(s *mesh.Service) family {
	if len(s.Addresses) == 0 {
		return ipv4
	}
	return familyOf(s.Addresses[0])
}

// withFamily returns the target as reached by a family. An external target has no family.
func (t target) withFamily(f family) target {
	t.family = f
	if f == primaryOf(t.service) || t.service.External != "" {
		t.family = primary
	}
	return t
}

// effectiveFamily returns the family by which t is reached.
func (t target) effectiveFamily() family {
	if t.family == primary {
		return primaryOf(t.service)
	}
	return t.family
}

// forProxy returns the target for p. A gRPC client does not subscribe by address: if it has a single
// family, that one is used.
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
