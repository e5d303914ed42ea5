package names

import (
	"net/netip"
	"strings"

	"outrider.dev/internal/core/mesh"
)

// A Family is a family of addresses. A connection to a service's IPv4 address goes to an IPv4 endpoint,
// as with kube-proxy, because the application may only listen on that family, and the client may have
// no other.
//
// Names contain the family only if it is not the service's primary one, so in a mesh with one family
// they are the same as Istio's.
type Family string

const (
	Primary Family = "" // the family of the service's first address
	ipv4    Family = "IPv4"
	ipv6    Family = "IPv6"
)

// Families are the families that may occur in a name. A name may contain the primary one if it was
// made while the other family was the primary one.
var Families = []Family{Primary, ipv4, ipv6}

// familyNamed returns the family with a name, which may be in upper or lower case, or else the primary one.
func familyNamed(name string) Family {
	for _, f := range Families {
		if strings.EqualFold(name, string(f)) {
			return f
		}
	}
	return Primary
}

// FamilyOf returns the family of an address, which may be IPv4-mapped.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return ipv4
	}
	return ipv6
}

// PrimaryOf returns the family of a service's first address. Without an address it is IPv4 and does not
// depend on the endpoints: these may change at any time, but names must not.
func PrimaryOf(s *mesh.Service) Family {
	if len(s.Addresses) == 0 {
		return ipv4
	}
	return FamilyOf(s.Addresses[0])
}

// WithFamily returns the target for connections to addresses of a family. An external target has no family.
func (t Target) WithFamily(f Family) Target {
	t.Family = f
	if f == PrimaryOf(t.Service) || t.Service.External != "" {
		t.Family = Primary
	}
	return t
}

// EffectiveFamily returns the family by which t is reached.
func (t Target) EffectiveFamily() Family {
	if t.Family == Primary {
		return PrimaryOf(t.Service)
	}
	return t.Family
}
