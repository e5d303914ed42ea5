package resource

import (
	"net/netip"
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// Names that Envoy shows and to which other resources refer.
const (
	passthroughCluster = contract.PassthroughCluster
	applicationCluster = "InboundPassthroughCluster" // the application, at the original destination
	internalName       = "routed"                    // the internal listener and its route configuration

	outboundName = "virtualOutbound"
	earlyName    = "virtualOutbound-early"

	inboundName      = "virtualInbound"
	earlyInboundName = "virtualInbound-early"

	sniffedPrefix = "outbound_" // precedes a port number

	httpPrefix, tcpPrefix, rawPrefix = contract.HTTPCluster, contract.TCPCluster, contract.RawCluster

	lateName = "late" // internal listener for silent connections to such a port
)

// An address is the parsed name of the cluster for an original destination.
type address struct {
	prefix string
	to     netip.AddrPort // never IPv4-mapped
}

// parseAddress parses the names that Envoy makes from %DOWNSTREAM_LOCAL_ADDRESS%. Like the other
// functions here, it accepts only the canonical form, because names are keys of caches and a caller
// could make up any number of aliases.
func parseAddress(name string) (address, bool) {
	for _, prefix := range []string{httpPrefix, tcpPrefix, rawPrefix} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		to, err := netip.ParseAddrPort(rest)
		if err != nil {
			return address{}, false
		}
		a := address{prefix, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}
		return a, to.Addr().Zone() == "" && a.String() == name
	}
	return address{}, false
}

func (a address) String() string { return a.prefix + a.to.String() }

// http reports whether the cluster is for requests.
func (a address) http() bool { return a.prefix == httpPrefix }

// late reports whether the cluster leads to the internal listener for silent connections.
func (a address) late(p mesh.Protocol) bool { return a.prefix == tcpPrefix && p.IsHTTP() }

// serviceName returns Istio's name for a service's port, used for its cluster and its endpoints. A
// family other than the primary one takes the place of a subset's name.
func serviceName(s *mesh.Service, port uint16, f family) string {
	return "outbound|" + strconv.Itoa(int(port)) + "|" + string(f) + "|" + s.Host
}

// serverName returns the same name in a form that TLS allows, for the SNI of mutual TLS.
func serverName(s *mesh.Service, port uint16) string {
	return "outbound_." + strconv.Itoa(int(port)) + "_._." + s.Host
}

// A reference is the parsed name of a service's port.
type reference struct {
	host   string
	port   uint16
	family family
}

// parseServiceName is the inverse of serviceName.
func parseServiceName(name string) (reference, bool) {
	rest, ok := strings.CutPrefix(name, "outbound|")
	number, rest, _ := strings.Cut(rest, "|")
	family, host, complete := strings.Cut(rest, "|")
	n, known := parsePort(number)
	f := familyNamed(family)
	return reference{host, n, f}, ok && complete && known && string(f) == family
}

// parsePort parses a decimal number without leading zeros.
func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && strconv.Itoa(int(n)) == text
}

// routedHost returns the authority by which the internal listener subscribes to a service's virtual
// host: "80.reviews.shop...", or "80-ipv6.reviews.shop..." if the connection's family is not the
// primary one. The port is in a label, because Envoy interprets what follows a colon. All is in lower
// case, as Envoy requires.
func (t target) routedHost() string {
	label := strconv.Itoa(int(t.port.Number))
	if t.family != primary {
		label += "-" + strings.ToLower(string(t.family))
	}
	return label + "." + t.service.Host
}

// virtualHost returns the name of that virtual host.
func (t target) virtualHost() string { return internalName + "/" + t.routedHost() }

// parseRoutedHost is the inverse of routedHost.
func parseRoutedHost(authority string) (reference, bool) {
	label, host, ok := strings.Cut(authority, ".")
	number, family, other := strings.Cut(label, "-")
	n, known := parsePort(number)
	f := familyNamed(family)
	return reference{host, n, f}, ok && known && strings.ToLower(string(f)) == family && other == (f != primary)
}
