package capture

import (
	"net/netip"
	"slices"
	"time"

	"outrider.dev/internal/base/contract"
)

// Mode is how inbound connections reach the proxy.
type Mode string

// The modes, Istio's interceptionMode.
const (
	RedirectMode Mode = "REDIRECT" // by NAT: the proxy sees the original destination, not the caller's address
	TProxyMode   Mode = "TPROXY"   // transparently: the app can see the caller's address
	NoneMode     Mode = "NONE"     // nothing is captured
)

// ParkMode is whether connections that arrive too early wait.
type ParkMode string

// The ways to park.
const (
	ParkOff     ParkMode = "off"     // they are refused, as without Outrider
	ParkOn      ParkMode = "on"      // they wait, where the kernel supports it
	ParkRequire ParkMode = "require" // they wait, or capture fails
)

// DNSMode selects the DNS queries that go to the agent's resolver.
type DNSMode string

// The ways to capture DNS.
const (
	DNSOff     DNSMode = ""
	DNSServers DNSMode = "servers" // those to the servers of resolv.conf
	DNSAll     DNSMode = "all"     // all to port 53
)

// A Selection is a list of values, or all of them. Its zero value is none.
type Selection[T any] struct {
	All  bool
	List []T
}

// The kinds of selections.
type (
	Ports  = Selection[uint16]
	Ranges = Selection[netip.Prefix]
	Groups = Selection[uint32]
)

// An Intent is what to capture and to park. [Defaults] is the one to start from;
// [Flags] are the settings that change it.
type Intent struct {
	Mode         Mode
	OutboundPort uint16 // the proxy's port for what the pod sends
	InboundPort  uint16 // the proxy's port for what the pod receives
	// SingleRules is for iptables where it cannot look up sets: long lists are a rule for
	// each element.
	SingleRules bool
	TunnelPort  uint16 // the proxy listens there itself: not captured
	ProxyUIDs   []uint32
	ProxyGIDs   []uint32

	InboundPorts        Ports
	ExcludeInboundPorts Ports

	OutboundRanges        Ranges
	ExcludeOutboundRanges []netip.Prefix
	OutboundPorts         Ports // captured for every address
	ExcludeOutboundPorts  []uint16
	OwnerGroups           Groups // only processes of these groups are captured
	ExcludeOwnerGroups    []uint32

	ExcludeInterfaces []string
	VirtualInterfaces []string     // what arrives there is a guest's outbound traffic
	Loopback          netip.Prefix // IPv4 destinations that stay in the pod

	DNS             DNSMode
	Nameservers     []netip.Addr // of resolv.conf
	DropInvalid     bool
	TProxyMark      uint32
	TProxyTable     int
	Families        Families // 0: by the addresses of the pod, see FamiliesOf
	Park            ParkMode
	ParkPorts       Ports         // local ports parked besides those of the proxy
	ParkLimit       time.Duration // how long connections wait for an absent listener; 0 is as long as the callers do
	ParkOnly        bool          // no capture: parking with the capture rules of another mesh
	proxyPortsGiven bool          // by -p or -z, so that ParkOnly does not guess them
}

// statusPorts are probed by the kubelet and scraped by Prometheus, also while the
// proxy is down. They are never captured, and connections are refused at once.
var statusPorts = []uint16{contract.StatusPort, contract.ReadinessPort, contract.PrometheusPort}

// meshPorts are the capture ports of other meshes: Istio's outbound and inbound port,
// then Linkerd's.
var meshPorts = []uint16{contract.OutboundPort, contract.InboundPort, 4140, 4143}

// Defaults is what istio-iptables does without flags, and parking.
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

// withDefaults sets the fields with a default that depends on other fields.
func (in Intent) withDefaults() Intent {
	if len(in.ProxyUIDs) == 0 {
		in.ProxyUIDs = []uint32{contract.ProxyUser}
	}
	if len(in.ProxyGIDs) == 0 {
		in.ProxyGIDs = in.ProxyUIDs
	}
	return in
}

// FamiliesOf is what to capture in a pod with these addresses: IPv4, and IPv6 if one
// of them is neither loopback nor link-local, nor ::6, which capture adds. Istio captures IPv6 only if configured
// to, and otherwise a pod's IPv6 traffic bypasses the proxy.
func FamiliesOf(addrs []netip.Addr) Families {
	var f Families
	for _, a := range addrs {
		if a = a.Unmap(); !a.IsLoopback() && !a.IsLinkLocalUnicast() && !passthrough6.Contains(a) {
			f |= FamilyOf(a)
		}
	}
	return f | IPv4
}

// captures reports whether in redirects anything at all.
func (in Intent) captures() bool { return in.Mode != NoneMode && !in.ParkOnly }

// parks reports whether connections to any port wait.
func (in Intent) parks() bool {
	return in.Park != ParkOff && (in.ParkPorts.All || len(in.parkedPorts()) > 0)
}

// Nothing reports whether in has no effect: no rule is needed for it.
func (in Intent) Nothing() bool { return !in.captures() && !in.parks() }

// loopbacks are the destinations that stay in the pod.
func (in Intent) loopbacks() []netip.Prefix { return []netip.Prefix{in.Loopback, loopback6} }

// parkedPorts are the local ports on which early connections wait, sorted.
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
	slices.Sort(ports)
	return slices.Compact(ports)
}
