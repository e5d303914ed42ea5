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

// serviceName is Istio's name of a service's port, for its cluster and its endpoints.
func serviceName(s *mesh.Service, port uint16) string {
	return "outbound|" + strconv.Itoa(int(port)) + "||" + s.Host
}

// serverName is the same as a name that TLS allows: what mutual TLS asks for.
func serverName(s *mesh.Service, port uint16) string {
	return "outbound_." + strconv.Itoa(int(port)) + "_._." + s.Host
}

// parseServiceName returns the host and port of a service's name.
func parseServiceName(name string) (host string, port uint16, ok bool) {
	rest, ok := strings.CutPrefix(name, "outbound|")
	if !ok {
		return "", 0, false
	}
	number, host, ok := strings.Cut(rest, "||")
	n, err := strconv.ParseUint(number, 10, 16)
	return host, uint16(n), ok && err == nil
}

// routedHost is the authority by which the listener inside asks for a service's virtual
// host. The port is a label: Envoy treats what is behind a colon in ways of its own.
func routedHost(host string, port uint16) string {
	return strconv.Itoa(int(port)) + "." + host
}

// parseRoutedHost reads the name of a virtual host, "routed/80.reviews.shop...".
func parseRoutedHost(name string) (host string, port uint16, ok bool) {
	rest, ok := strings.CutPrefix(name, routed+"/")
	if !ok {
		return "", 0, false
	}
	number, host, ok := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(number, 10, 16)
	return host, uint16(n), ok && err == nil
}
