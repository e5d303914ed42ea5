package capture

import (
	"net/netip"
	"slices"
	"sort"
	"time"

	"outrider.dev/internal/base/contract"
)

// Mode selects how inbound connections reach the proxy.
type Mode string

// The modes, with the names of Istio's interceptionMode:
const (
	RedirectMode Mode = "REDIRECT" // by NAT: the proxy sees the original destination, and the app does not see the caller's address
	TProxyMode   Mode = "TPROXY"   // transparently: the app can see the caller's address
	NoneMode     Mode = "NONE"     // nothing is captured
)

// ParkMode selects whether connections that arrive too early wait.
type ParkMode string

// The modes of parking:
const (
	ParkOff     ParkMode = "off"     // connections are refused, as without Outrider
	ParkOn      ParkMode = "on"      // connections wait if the kernel supports it
	ParkRequire ParkMode = "require" // connections wait, or capture fails
)

// DNSMode selects the DNS queries that are redirected to the agent's resolver.
type DNSMode string

// The modes of DNS capture:
const (
	DNSOff     DNSMode = ""
	DNSServers DNSMode = "servers" // queries to the servers in resolv.conf
	DNSAll     DNSMode = "all"     // all queries to port 53
)

// A Selection is a list of values, or all values. Its zero value selects none.
type Selection[T any] struct {
	All  bool
	List []T
}

// The types of selections in use:
type (
	Ports  = Selection[uint16]
	Ranges = Selection[netip.Prefix]
	Groups = Selection[uint32]
)

// An Intent describes which connections to capture and which to park. [Defaults] returns the initial one; [Flags]
// returns the settings that change it.
type Intent struct {
	Mode         Mode
	OutboundPort uint16 // the proxy's port for connections of the pod's processes
	InboundPort  uint16 // the proxy's port for connections to the pod
	// SingleRules is set if iptables cannot look up sets here: each element of a long list then takes a rule of
	// its own.
	SingleRules bool
	TunnelPort  uint16 // the proxy itself listens on it, so it is not captured
	ProxyUIDs   []uint32
	ProxyGIDs   []uint32

	InboundPorts        Ports
	ExcludeInboundPorts Ports

	OutboundRanges        Ranges
	ExcludeOutboundRanges []netip.Prefix
	OutboundPorts         Ports // captured at every destination address
	ExcludeOutboundPorts  []uint16
	OwnerGroups           Groups // only processes of these groups are captured
	ExcludeOwnerGroups    []uint32

	ExcludeInterfaces []string
	VirtualInterfaces []string     // interfaces of virtual machines in the pod; packets that arrive there are outbound traffic
	Loopback          netip.Prefix // IPv4 destinations that stay in the pod

	DNS             DNSMode
	Nameservers     []netip.Addr // of resolv.conf
	DropInvalid     bool
	TProxyMark      uint32
	TProxyTable     int
	Families        Families // 0: follows from the addresses of the pod, see FamiliesOf
	Park            ParkMode
	ParkPorts       Ports         // local ports that are parked besides the proxy's ports
	ParkLimit       time.Duration // limits the wait of connections for an absent listener; 0: they wait as long as the callers retry
	ParkOnly        bool          // the rules only park, because another mesh's rules capture
	proxyPortsGiven bool          // set by -p or -z, so ParkOnly does not guess the ports
}

// statusPorts are probed by the kubelet and scraped by Prometheus, even while the proxy is down.
// They are never captured, and never parked: without a listener, connections are refused at once.
var statusPorts = []uint16{contract.StatusPort, contract.ReadinessPort, contract.PrometheusPort}

// meshPorts are the capture ports of other meshes: Istio's outbound and inbound port, and then
// Linkerd's.
var meshPorts = []uint16{contract.OutboundPort, contract.InboundPort, 4140, 4143}

// Defaults returns the intent that captures like istio-iptables without flags, and parks.
func Defaults() Intent {
	return Intent{
		Mode:         RedirectMode,
		OutboundPort: contract.OutboundPort,
		InboundPort:  contract.InboundPort,
		TunnelPort:   contract.TunnelPort,
		OwnerGroups:  Groups{All: true},
		Loopback:     netip.MustParsePrefix("127.0.0.1/32"),
		TProxyMark:   1337,
		TProxyTable:  133,
		Park:         ParkOn,
		ParkLimit:    time.Minute,
	}
}

// withDefaults sets fields whose defaults depend on other fields.
func (in Intent) withDefaults() Intent {
	if len(in.ProxyUIDs) == 0 {
		in.ProxyUIDs = []uint32{contract.ProxyUser}
	}
	if len(in.ProxyGIDs) == 0 {
		in.ProxyGIDs = in.ProxyUIDs
	}
	return in
}

// FamiliesOf returns the families to capture in a pod with these addresses: IPv4, and also IPv6 if
// a pod address is neither loopback, link-local, nor the ::6 that capture adds. Istio captures IPv6
// only if configured to; without that, IPv6 traffic bypasses the proxy.
func FamiliesOf(addrs []netip.Addr) Families {
	var f Families
	for _, a := range addrs {
		if a = a.Unmap(); !a.IsLoopback() && !a.IsLinkLocalUnicast() && !passthrough6.Contains(a) {
			f |= FamilyOf(a)
		}
	}
	return f | IPv4
}

// captures reports whether the intent redirects anything.
func (in Intent) captures() bool { return in.Mode != NoneMode && !in.ParkOnly }

// parks reports whether connections to any port are parked.
func (in Intent) parks() bool {
	return in.Park != ParkOff && (in.ParkPorts.All || len(in.parkedPorts()) > 0)
}

// Nothing reports whether the intent has no effect, so that no rule is needed.
func (in Intent) Nothing() bool { return !in.captures() && !in.parks() }

// loopbacks returns the destinations that stay in the pod.
func (in Intent) loopbacks() []netip.Prefix { return []netip.Prefix{in.Loopback, loopback6} }

// parkedPorts returns the local ports on which early connections wait, sorted.
func (in Intent) parkedPorts() []uint16 {
	if in.Park == ParkOff {
		return nil
	}
	var ports []uint16
	switch {
	case in.ParkOnly && !in.proxyPortsGiven:
		ports = append(ports, meshPorts...)
	case in.ParkOnly, in.captures():
		ports = append(ports, in.OutboundPort, in.InboundPort)
	}
	if in.captures() && in.DNS != DNSOff {
		ports = append(ports, contract.DNSPort)
	}
	for _, p := range in.ParkPorts.List {
		if !slices.Contains(statusPorts, p) {
			ports = append(ports, p)
		}
	}
	sort.Slice(ports, func(i, j int) bool { return ports[i] < ports[j] }) // saves code, see sorted
	return slices.Compact(ports)
}
