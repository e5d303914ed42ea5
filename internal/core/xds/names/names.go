// Package names has the names of Envoy's resources, and what they stand for: an address to which an application
// connects, or a port of a service, reached by a family of addresses. It promises that each of them has only one
// name: a text is parsed only if the result prints as the same text.
package names

import (
	"net/netip"
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// Names that Envoy shows and to which other resources refer.
const (
	Passthrough = contract.PassthroughCluster
	Application = "InboundPassthroughCluster" // the application, at the original destination
	Internal    = "routed"                    // the internal listener and its route configuration

	Outbound      = "virtualOutbound"
	EarlyOutbound = "virtualOutbound-early"

	Inbound      = "virtualInbound"
	EarlyInbound = "virtualInbound-early"

	SniffedPrefix = "outbound_" // precedes a port number

	HTTP, TCP, Raw = contract.HTTPCluster, contract.TCPCluster, contract.RawCluster

	Late = "late" // internal listener for silent connections to a port that declares HTTP

	Tracing = "tracing" // the collector of spans
)

// An Address is the parsed name of the cluster for an original destination.
type Address struct {
	Prefix string
	To     netip.AddrPort // never IPv4-mapped
}

// ParseAddress parses the names that Envoy makes from %DOWNSTREAM_LOCAL_ADDRESS%. Like the other
// functions here, it accepts only the canonical form, because names are keys of caches and a caller
// could make up any number of aliases.
func ParseAddress(name string) (Address, bool) {
	for _, prefix := range []string{HTTP, TCP, Raw} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		to, err := netip.ParseAddrPort(rest)
		if err != nil {
			return Address{}, false
		}
		a := Address{prefix, netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}
		return a, to.Addr().Zone() == "" && a.String() == name
	}
	return Address{}, false
}

func (a Address) String() string { return a.Prefix + a.To.String() }

// HTTP reports whether the cluster is for requests.
func (a Address) HTTP() bool { return a.Prefix == HTTP }

// Late reports whether the cluster leads to the internal listener for silent connections.
func (a Address) Late(p mesh.Protocol) bool { return a.Prefix == TCP && p.IsHTTP() }

// Service returns Istio's name for a service's port, used for its cluster and its endpoints, such as
// "outbound|80||reviews.shop.svc.cluster.local". A family other than the primary one takes the place of a
// subset's name.
func Service(s *mesh.Service, port uint16, f Family) string {
	return "outbound|" + strconv.Itoa(int(port)) + "|" + string(f) + "|" + s.Host
}

// Server returns the name of a service's port in a form that TLS allows, for the SNI of mutual TLS.
func Server(s *mesh.Service, port uint16) string {
	return "outbound_." + strconv.Itoa(int(port)) + "_._." + s.Host
}

// A Reference is the parsed name of a service's port.
type Reference struct {
	Host   string
	Port   uint16
	Family Family
}

// ParseService is the inverse of Service.
func ParseService(name string) (Reference, bool) {
	rest, ok := strings.CutPrefix(name, "outbound|")
	number, rest, _ := strings.Cut(rest, "|")
	family, host, complete := strings.Cut(rest, "|")
	n, known := ParsePort(number)
	f := familyNamed(family)
	return Reference{host, n, f}, ok && complete && known && string(f) == family
}

// ParsePort parses a decimal number without leading zeros.
func ParsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && strconv.Itoa(int(n)) == text
}

// RoutedHost returns the authority by which the internal listener subscribes to a service's virtual host:
// "80.reviews.shop...", or "80-ipv6.reviews.shop..." if the connection's family is not the primary one. The port
// is in a label, because Envoy interprets what follows a colon. The whole authority is in lower case, as Envoy
// requires.
func (t Target) RoutedHost() string {
	label := strconv.Itoa(int(t.Port.Number))
	if t.Family != Primary {
		label += "-" + strings.ToLower(string(t.Family))
	}
	return label + "." + t.Service.Host
}

// VirtualHost returns the name of the target's virtual host in the internal listener.
func (t Target) VirtualHost() string { return Internal + "/" + t.RoutedHost() }

// ParseRoutedHost is the inverse of RoutedHost.
func ParseRoutedHost(authority string) (Reference, bool) {
	label, host, ok := strings.Cut(authority, ".")
	number, family, other := strings.Cut(label, "-")
	n, known := ParsePort(number)
	f := familyNamed(family)
	return Reference{host, n, f}, ok && known && strings.ToLower(string(f)) == family && other == (f != Primary)
}

// A Target is a service's port, reached by a family.
type Target struct {
	Service *mesh.Service
	Port    *mesh.Port
	Family  Family
}

// Name returns the name of the target's cluster, and of its endpoints.
func (t Target) Name() string { return Service(t.Service, t.Port.Number, t.Family) }

// Policy returns the policy for a service's port. It applies to everything that is sent to the
// service's endpoints, even by a route of another service.
func (t Target) Policy() mesh.BackendPolicy { return t.Service.Policy(t.Port.Number) }

// Sniffed returns the name of the listener for a port number on which a service has HTTP, or may have it.
func Sniffed(port uint16) string { return SniffedPrefix + strconv.Itoa(int(port)) }
