package resource

import (
	"net/netip"
	"strconv"
	"strings"

	"outrider.dev/internal/mesh"
)

// Names that Envoy shows and other resources refer to.
const (
	passthrough = "PassthroughCluster"        // of the bootstrap: where a connection was going
	toApp       = "InboundPassthroughCluster" // the application, on the address that was called
	routed      = "routed"                    // the listener inside, and its route configuration

	outboundName = "virtualOutbound"
	earlyName    = "virtualOutbound-early"

	byHTTP = "http|" // and an address and port: a cluster for requests
	byTCP  = "tcp|"  // the same for bytes
)

// An address is the name of a cluster that is found by where a connection goes.
type address struct {
	http bool
	to   netip.AddrPort // unmapped
}

// parseAddress reads names as Envoy makes them out of %DOWNSTREAM_LOCAL_ADDRESS%.
func parseAddress(name string) (address, bool) {
	rest, http := strings.CutPrefix(name, byHTTP)
	if !http {
		var tcp bool
		if rest, tcp = strings.CutPrefix(name, byTCP); !tcp {
			return address{}, false
		}
	}
	to, err := netip.ParseAddrPort(rest)
	if err != nil {
		return address{}, false
	}
	return address{http, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}, true
}

func (a address) String() string {
	if a.http {
		return byHTTP + a.to.String()
	}
	return byTCP + a.to.String()
}

// serviceName is Istio's name of a service's port, for its cluster and its endpoints. Where
// Istio has the name of a subset, it has the family, if that is not the service's first.
func serviceName(s *mesh.Service, port uint16, f family) string {
	return "outbound|" + strconv.Itoa(int(port)) + "|" + string(f) + "|" + s.Host
}

// serverName is the same as a name that TLS allows: what mutual TLS asks for.
func serverName(s *mesh.Service, port uint16) string {
	return "outbound_." + strconv.Itoa(int(port)) + "_._." + s.Host
}

// A reference is what the name of a service's port says.
type reference struct {
	host   string
	port   uint16
	family family
}

// parseServiceName reads a service's name.
func parseServiceName(name string) (reference, bool) {
	rest, ok := strings.CutPrefix(name, "outbound|")
	number, rest, _ := strings.Cut(rest, "|")
	family, host, complete := strings.Cut(rest, "|")
	r, known := refer(host, number, family)
	return r, ok && complete && known
}

func refer(host, port, name string) (reference, bool) {
	n, err := strconv.ParseUint(port, 10, 16)
	for _, f := range written {
		if strings.EqualFold(name, string(f)) {
			return reference{host, uint16(n), f}, err == nil
		}
	}
	return reference{}, false
}

// routedHost is the authority by which the listener inside asks for a service's virtual
// host: "80.reviews.shop...", or "80-ipv6.reviews.shop..." if it was called by another
// family than its first. The port is in a label, because Envoy treats what is behind a
// colon in ways of its own, and in lower case, as Envoy asks.
func (t target) routedHost() string {
	label := strconv.Itoa(int(t.port.Number))
	if t.family != first {
		label += "-" + strings.ToLower(string(t.family))
	}
	return label + "." + t.service.Host
}

// virtualHost is the name of that virtual host.
func (t target) virtualHost() string { return routed + "/" + t.routedHost() }

// parseRoutedHost reads the authority.
func parseRoutedHost(authority string) (reference, bool) {
	label, host, ok := strings.Cut(authority, ".")
	number, family, _ := strings.Cut(label, "-")
	r, known := refer(host, number, family)
	return r, ok && known
}
