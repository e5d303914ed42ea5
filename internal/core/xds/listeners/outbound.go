// Package listeners makes the listeners of a proxy for both directions. It promises that the listeners depend on
// the mesh as little as possible, because Envoy closes a listener's connections when its filters change. Outbound
// listeners depend on port numbers, inbound ones on the ports and policies of the workload.
package listeners

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	values "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	original "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	proxyprotocol "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	answer "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/direct_response/v3"
	state "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/retry"
)

// sniffTimeout limits the wait for the first bytes of a connection from the application, by which its
// protocol is detected.
const sniffTimeout = 200 * time.Millisecond

// A Builder builds listeners. Its fields are properties of the mesh.
type Builder struct {
	TrustDomain     string
	MinTLS          mesh.TLSVersion
	Networks        []netip.Prefix // of the mesh
	Ranges          []netip.Prefix // of services' addresses, within the networks
	FirstUseTimeout time.Duration  // limits the wait of a proxy for the control plane
}

// firstUse returns the limit of a proxy's wait for the control plane when it uses a service for the first time.
func (b Builder) firstUse(f features.Features) time.Duration { return f.FirstUse(b.FirstUseTimeout) }

// Outbound accepts the application's connections. It inspects nothing. It hands a connection to the listener for
// the port number of its destination, if there is one. Such a listener waits for the first bytes; it exists for
// each number on which a service has HTTP or declares no protocol. Adding a port number to the mesh, or removing
// one, thus adds or removes a listener, and connections on all others stay open. A change of a listener's filters
// would close its connections.
func (b Builder) Outbound(sh features.Features) *listener.Listener {
	l := listen(names.Outbound, sh.Wildcards(contract.OutboundPort)...)
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.UseOriginalDst = wrapperspb.Bool(true)
	l.FilterChains = append(rejectOwnPorts(), b.bytesByAddress(names.TCP, b.firstUse(sh))...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

// Early accepts the connections that began before the proxy started, whose original destination is in a
// header. It cannot hand them to other listeners, because Envoy would ask the kernel for the
// destination again. So it detects HTTP itself, except on port numbers on which a server speaks first,
// which rarely change.
func (b Builder) Early(sh features.Features, serverFirst []uint16) *listener.Listener {
	l := deferAccept(listen(names.EarlyOutbound, netip.AddrPortFrom(loopback, contract.RelayOutbound)))
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	var excluded []*predicate
	for _, port := range serverFirst {
		excluded = append(excluded, onPort(port))
	}
	inspect := httpInspector()
	inspect.FilterDisabled = anyOf(excluded)
	detect(l, sniffTimeout, proxyProtocol(), inspect)
	timeout := max(b.firstUse(sh), earlyFirstUseTimeout)
	l.FilterChains = append(append(rejectOwnPorts(), b.httpByAddress(timeout)), b.bytesByAddress(names.TCP, timeout)...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

// Sniffed returns the listener for a port number on which a service has HTTP, or may have it.
func (b Builder) Sniffed(sh features.Features, port uint16) *listener.Listener {
	l := listen(names.Sniffed(port), sh.Wildcards(port)...)
	l.BindToPort = wrapperspb.Bool(false)
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	detect(l, sniffTimeout, httpInspector())
	l.FilterChains = append([]*listener.FilterChain{b.httpByAddress(b.firstUse(sh))}, b.bytesByAddress(names.TCP, b.firstUse(sh))...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

// ServerFirst returns the listener for a virtual address and port on which the server speaks first.
func (b Builder) ServerFirst(sh features.Features, name string, at netip.AddrPort) *listener.Listener {
	l := listen(name, at)
	l.BindToPort = wrapperspb.Bool(false)
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.FilterChains = []*listener.FilterChain{byAddress("tcp", names.TCP, toService(names.Passthrough), b.firstUse(sh), b.Networks)}
	l.DefaultFilterChain = passthroughChain()
	return l
}

// detect adds listener filters, one of which may time out while it waits for the first bytes.
func detect(l *listener.Listener, timeout time.Duration, filters ...*listener.ListenerFilter) {
	l.ListenerFilters = filters
	l.ListenerFiltersTimeout = durationpb.New(timeout)
	l.ContinueOnListenerFiltersTimeout = true
}

// Internal serves requests to services with routes.
func (b Builder) Internal(sh features.Features) *listener.Listener {
	l := internal(names.Internal, core.TrafficDirection_OUTBOUND)
	l.FilterChains = []*listener.FilterChain{{Name: "http", Filters: []*listener.Filter{b.httpRouteByService(sh)}}}
	return l
}

// internal returns an internal listener, which only Envoy itself can connect to.
func internal(name string, d core.TrafficDirection) *listener.Listener {
	return &listener.Listener{
		Name:              name,
		TrafficDirection:  d,
		ListenerSpecifier: &listener.Listener_InternalListener{InternalListener: &listener.Listener_InternalListenerConfig{}},
	}
}

var loopback = netip.MustParseAddr("127.0.0.1")

// listen returns a listener on at least one address.
func listen(name string, at ...netip.AddrPort) *listener.Listener {
	l := &listener.Listener{Name: name, Address: socketAddress(at[0])}
	for _, a := range at[1:] {
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listener.AdditionalAddress{Address: socketAddress(a)})
	}
	return l
}

func socketAddress(a netip.AddrPort) *core.Address {
	return message.SocketAddress(a.Addr().String(), a.Port())
}

// deferAccept makes the kernel hold a connection back until its header has arrived (TCP_DEFER_ACCEPT, tcp(7)).
// The timeout for the first bytes is short, for the sake of servers that speak first, and begins when Envoy
// accepts the connection. An agent that hands over thousands at once may send a header later, and Envoy would
// close the connection. A connection without a header is closed after the number of seconds below.
func deferAccept(l *listener.Listener) *listener.Listener {
	const tcpLevel, deferAccept, seconds = 6, 9, 3 // IPPROTO_TCP, TCP_DEFER_ACCEPT
	l.SocketOptions = append(l.SocketOptions, &core.SocketOption{
		Description: "wait for the header", Level: tcpLevel, Name: deferAccept, State: core.SocketOption_STATE_LISTENING,
		Value: &core.SocketOption_IntValue{IntValue: seconds},
	})
	return l
}

// rejectOwnPorts closes connections to the proxy's own ports, because forwarding them would lead back
// to the proxy in an endless loop.
func rejectOwnPorts() []*listener.FilterChain {
	var out []*listener.FilterChain
	for _, port := range mesh.ProxyPorts {
		out = append(out, &listener.FilterChain{
			Name:             "closed-" + strconv.Itoa(int(port)),
			FilterChainMatch: &listener.FilterChainMatch{DestinationPort: wrapperspb.UInt32(uint32(port))},
			Filters:          []*listener.Filter{message.NetworkFilter("envoy.filters.network.direct_response", &answer.Config{})},
		})
	}
	return out
}

// httpByAddress does the same as bytesByAddress for connections in which HTTP was detected. It also
// lists the networks of services, because Envoy compares the application protocol only among the chains
// with the longest matching prefix.
func (b Builder) httpByAddress(timeout time.Duration) *listener.FilterChain {
	c := httpChain(httpRouteByAddress(timeout))
	c.FilterChainMatch.PrefixRanges = append(cidrs(b.networksWithoutServices()), cidrs(b.Ranges)...)
	return c
}

// detectedHTTP lists the application protocols that the HTTP inspector reports.
var detectedHTTP = []string{"http/1.0", "http/1.1", "h2c"}

// httpChain returns a chain for connections in which HTTP was detected.
func httpChain(filter *listener.Filter) *listener.FilterChain {
	return &listener.FilterChain{
		Name:             "http",
		FilterChainMatch: &listener.FilterChainMatch{ApplicationProtocols: detectedHTTP},
		Filters:          []*listener.Filter{filter},
	}
}

// tcpClusterState is the filter state that overrides the cluster of a TCP proxy.
const tcpClusterState = "envoy.tcp_proxy.cluster"

// bytesByAddress returns the chains that send connections inside the mesh's networks to the cluster of
// their address. Failed connections are retried only in the networks of services; elsewhere the
// application gets the network's first answer. Each range of services has its own chain, so that
// connections on other chains stay open when a range is added.
func (b Builder) bytesByAddress(prefix string, timeout time.Duration) []*listener.FilterChain {
	var out []*listener.FilterChain
	if others := b.networksWithoutServices(); len(others) > 0 { // a chain without prefixes would match all addresses
		out = append(out, byAddress("tcp", prefix, toCluster(names.Passthrough), timeout, others))
	}
	for _, r := range b.Ranges {
		out = append(out, byAddress("tcp "+r.String(), prefix, toService(names.Passthrough), timeout, []netip.Prefix{r}))
	}
	return out
}

// networksWithoutServices returns the mesh's networks except the ranges of services, because Envoy
// rejects a prefix in two chains.
func (b Builder) networksWithoutServices() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(b.Networks), func(n netip.Prefix) bool { return slices.Contains(b.Ranges, n.Masked()) })
}

// byAddress returns a chain that forwards bytes. The API requires a cluster in the chain; the filter state
// overrides it.
func byAddress(name, prefix string, bytes *tcp.TcpProxy, timeout time.Duration, to []netip.Prefix) *listener.FilterChain {
	choose := message.NetworkFilter("envoy.filters.network.set_filter_state", &state.Config{
		OnNewConnection: []*values.FilterStateValue{setState(tcpClusterState, prefix+"%DOWNSTREAM_LOCAL_ADDRESS%")},
	})
	bytes.StatPrefix = "outbound"
	bytes.OnDemand = &tcp.TcpProxy_OnDemand{OdcdsConfig: message.ADS(0), Timeout: durationpb.New(timeout)}
	return &listener.FilterChain{
		Name:             name,
		FilterChainMatch: &listener.FilterChainMatch{PrefixRanges: cidrs(to)},
		Filters:          []*listener.Filter{choose, tcpProxy(bytes)},
	}
}

// passthroughChain is for destinations outside of the mesh's networks, for which the proxy does not
// subscribe to anything.
func passthroughChain() *listener.FilterChain {
	return &listener.FilterChain{
		Name:    "passthrough",
		Filters: []*listener.Filter{tcpProxy(toCluster(names.Passthrough))},
	}
}

// toCluster forwards bytes without an idle timeout.
func toCluster(name string) *tcp.TcpProxy {
	return &tcp.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcp.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      durationpb.New(0),
	}
}

// toService forwards bytes to a cluster whose connections are retried. Without a pause, two attempts
// might select the same endpoint before its failure is counted.
func toService(cluster string) *tcp.TcpProxy {
	p := toCluster(cluster)
	p.MaxConnectAttempts = wrapperspb.UInt32(retry.Tries)
	p.BackoffOptions = &core.BackoffStrategy{BaseInterval: durationpb.New(retry.FirstPause), MaxInterval: durationpb.New(retry.LongestPause)}
	return p
}

func cidrs(list []netip.Prefix) []*core.CidrRange {
	var out []*core.CidrRange
	for _, p := range list {
		out = append(out, message.CIDR(p))
	}
	return out
}

func httpInspector() *listener.ListenerFilter {
	return message.ListenerFilter("envoy.filters.listener.http_inspector", &inspector.HttpInspector{})
}

func originalDestination() *listener.ListenerFilter {
	return message.ListenerFilter("envoy.filters.listener.original_dst", &original.OriginalDst{})
}

// proxyProtocol reads the original destination from a header, and closes connections without one.
func proxyProtocol() *listener.ListenerFilter {
	return message.ListenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocol.ProxyProtocol{})
}

func tcpProxy(p *tcp.TcpProxy) *listener.Filter {
	return message.NetworkFilter("envoy.filters.network.tcp_proxy", p)
}
