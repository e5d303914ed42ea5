package resource

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
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// sniffTimeout limits the wait for the first bytes of a connection from the application, by which its
// protocol is detected.
const sniffTimeout = 200 * time.Millisecond

// outbound accepts the application's connections. It inspects nothing, and hands a connection to the
// listener for its destination's port number, if there is one: for a number on which a service has HTTP
// or declares no protocol. That listener waits for the first bytes. Adding a port number to the mesh,
// or removing one, thus adds or removes a listener, and connections on all others stay open. A change
// of a listener's filters would close its connections.
func (v *snapshot) outbound(sh features) *listener.Listener {
	l := listen(outboundName, sh.wildcards(contract.OutboundPort)...)
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.UseOriginalDst = on()
	l.FilterChains = append(rejectOwnPorts(), v.bytesByAddress(tcpPrefix, v.firstUse(sh))...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

// early accepts the connections that began before the proxy started, whose original destination is in a
// header. It cannot hand them to other listeners, because Envoy would ask the kernel for the
// destination again. So it detects HTTP itself, except on port numbers on which a server speaks first,
// which rarely change.
func (v *snapshot) early(sh features, serverFirst []uint16) *listener.Listener {
	l := deferAccept(listen(earlyName, socket{loopback, contract.RelayOutbound}))
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	var excluded []*predicate
	for _, port := range serverFirst {
		excluded = append(excluded, onPort(port))
	}
	inspect := httpInspector()
	inspect.FilterDisabled = anyOf(excluded)
	detect(l, sniffTimeout, proxyProtocol(), inspect)
	timeout := max(v.firstUse(sh), earlyFirstUseTimeout)
	l.FilterChains = append(append(rejectOwnPorts(), v.httpByAddress(timeout)), v.bytesByAddress(tcpPrefix, timeout)...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

// sniffed returns the listener for a port number that has HTTP, or may have it.
func (v *snapshot) sniffed(sh features, port uint16) *listener.Listener {
	l := listen(sniffedName(port), sh.wildcards(port)...)
	l.BindToPort = off()
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	detect(l, sniffTimeout, httpInspector())
	l.FilterChains = append([]*listener.FilterChain{v.httpByAddress(v.firstUse(sh))}, v.bytesByAddress(tcpPrefix, v.firstUse(sh))...)
	l.DefaultFilterChain = passthroughChain()
	return l
}

func sniffedName(port uint16) string { return sniffedPrefix + strconv.Itoa(int(port)) }

// detect adds listener filters, one of which may time out while it waits for the first bytes.
func detect(l *listener.Listener, timeout time.Duration, filters ...*listener.ListenerFilter) {
	l.ListenerFilters = filters
	l.ListenerFiltersTimeout = duration(timeout)
	l.ContinueOnListenerFiltersTimeout = true
}

// internalListener serves requests to services with routes.
func (b *builder) internalListener(sh features) *listener.Listener {
	l := internal(internalName, core.TrafficDirection_OUTBOUND)
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

// listen returns a listener on at least one address.
func listen(name string, at ...socket) *listener.Listener {
	l := &listener.Listener{Name: name, Address: at[0].address()}
	for _, s := range at[1:] {
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listener.AdditionalAddress{Address: s.address()})
	}
	return l
}

// deferAccept makes the kernel hold a connection back until its header has arrived (TCP_DEFER_ACCEPT,
// tcp(7)). The timeout for the first bytes is short, for the sake of servers that speak first, and
// begins when Envoy accepts the connection. An agent that hands over thousands at once may send a
// header later, and Envoy would close the connection. After this number of seconds without a header it
// is closed anyway.
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
			FilterChainMatch: &listener.FilterChainMatch{DestinationPort: uint32Value(uint32(port))},
			Filters:          []*listener.Filter{network("envoy.filters.network.direct_response", &answer.Config{})},
		})
	}
	return out
}

// httpByAddress does the same as bytesByAddress for connections in which HTTP was detected. It also
// lists the networks of services, because Envoy compares the application protocol only among the chains
// with the longest matching prefix.
func (v *snapshot) httpByAddress(timeout time.Duration) *listener.FilterChain {
	c := httpChain(httpRouteByAddress(timeout))
	c.FilterChainMatch.PrefixRanges = append(cidrs(v.networksWithoutServices()), cidrs(v.serviceRanges())...)
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
func (v *snapshot) bytesByAddress(prefix string, timeout time.Duration) []*listener.FilterChain {
	var out []*listener.FilterChain
	if others := v.networksWithoutServices(); len(others) > 0 { // a chain without prefixes would match all addresses
		out = append(out, byAddress("tcp", prefix, toCluster(passthroughCluster), timeout, others))
	}
	for _, r := range v.serviceRanges() {
		out = append(out, byAddress("tcp "+r.String(), prefix, toService(passthroughCluster), timeout, []netip.Prefix{r}))
	}
	return out
}

// networksWithoutServices returns the mesh's networks except the ranges of services, because Envoy
// rejects a prefix in two chains.
func (v *snapshot) networksWithoutServices() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(v.config.Networks), func(n netip.Prefix) bool { return slices.Contains(v.serviceRanges(), n.Masked()) })
}

// byAddress returns a chain for bytes. The API requires a cluster in it, which the filter state
// overrides.
func byAddress(name, prefix string, bytes *tcp.TcpProxy, timeout time.Duration, to []netip.Prefix) *listener.FilterChain {
	choose := network("envoy.filters.network.set_filter_state", &state.Config{
		OnNewConnection: []*values.FilterStateValue{setState(tcpClusterState, prefix+"%DOWNSTREAM_LOCAL_ADDRESS%")},
	})
	bytes.StatPrefix = "outbound"
	bytes.OnDemand = &tcp.TcpProxy_OnDemand{OdcdsConfig: ads(0), Timeout: duration(timeout)}
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
		Filters: []*listener.Filter{tcpProxy(toCluster(passthroughCluster))},
	}
}

// toCluster forwards bytes without an idle timeout.
func toCluster(name string) *tcp.TcpProxy {
	return &tcp.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcp.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      duration(0),
	}
}

// toService forwards bytes to a cluster with tryTimeout. Without a pause, two attempts might select the
// same endpoint before its failure is counted.
func toService(cluster string) *tcp.TcpProxy {
	p := toCluster(cluster)
	p.MaxConnectAttempts = uint32Value(connectTries)
	p.BackoffOptions = &core.BackoffStrategy{BaseInterval: duration(firstPause), MaxInterval: duration(longestPause)}
	return p
}

func cidrs(list []netip.Prefix) []*core.CidrRange {
	var out []*core.CidrRange
	for _, p := range list {
		out = append(out, cidr(p))
	}
	return out
}

func cidr(p netip.Prefix) *core.CidrRange {
	return &core.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: uint32Value(uint32(p.Bits()))}
}

func httpInspector() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", &inspector.HttpInspector{})
}

func originalDestination() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.original_dst", &original.OriginalDst{})
}

// proxyProtocol reads the original destination from a header, and closes connections without one.
func proxyProtocol() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocol.ProxyProtocol{})
}

func listenerFilter(name string, config proto.Message) *listener.ListenerFilter {
	return &listener.ListenerFilter{Name: name, ConfigType: &listener.ListenerFilter_TypedConfig{TypedConfig: typed(config)}}
}

func tcpProxy(p *tcp.TcpProxy) *listener.Filter {
	return network("envoy.filters.network.tcp_proxy", p)
}

func network(name string, config proto.Message) *listener.Filter {
	return &listener.Filter{Name: name, ConfigType: &listener.Filter_TypedConfig{TypedConfig: typed(config)}}
}
