package resource

import (
	"net/netip"
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

	"outrider.dev/internal/mesh"
)

// Ports that the proxy listens on.
const (
	outboundPort  = mesh.OutboundPort
	inboundPort   = mesh.InboundPort
	outboundEarly = mesh.EarlyOutboundPort
	inboundEarly  = mesh.EarlyInboundPort
)

var own = mesh.ProxyPorts

// sniffTimeout is how long a connection waits to be told apart by its first bytes.
const sniffTimeout = 200 * time.Millisecond

// outbound takes what the application sends. It looks at nothing, and hands a connection
// to the listener of its destination's port number, if there is one: that of a number
// where a service speaks HTTP, or what is not declared. There the first bytes are waited
// for. So a number that comes or goes in the mesh is a listener that comes or goes, and
// the connections on all others stay as they are: a change of what a listener looks at
// would end them.
func (b *builder) outbound(sh shape) *listener.Listener {
	l := listen(outboundName, sh.wildcards(outboundPort)...)
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.UseOriginalDst = yes() // and Envoy finds it out
	l.FilterChains = append(closed(), b.bytesByAddress(b.patience))
	l.DefaultFilterChain = passed()
	return l
}

// early is the same for what came before the proxy did: the original destination is in a
// header. It cannot hand connections on, because Envoy would ask the kernel again where
// they were going. So it looks itself, except on port numbers where a server is declared
// to speak first: they change seldom.
func (b *builder) early(never []uint16) *listener.Listener {
	l := headed(listen(earlyName, socket{loopback, outboundEarly}))
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	var blind []*predicate
	for _, port := range never {
		blind = append(blind, onPort(port))
	}
	look := httpInspector()
	look.FilterDisabled = anyOf(blind)
	l.ListenerFilters = []*listener.ListenerFilter{proxyProtocol(), look}
	l.ListenerFiltersTimeout = lasting(sniffTimeout)
	l.ContinueOnListenerFiltersTimeout = true
	wait := max(b.patience, earlyPatience)
	l.FilterChains = append(closed(), b.requestsByAddress(wait), b.bytesByAddress(wait))
	l.DefaultFilterChain = passed()
	return l
}

// sniffed is the listener for a port number with HTTP on it, or what may be.
func (b *builder) sniffed(sh shape, port uint16) *listener.Listener {
	l := listen(sniffedName(port), sh.wildcards(port)...)
	l.BindToPort = no()
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.ListenerFilters = []*listener.ListenerFilter{httpInspector()}
	l.ListenerFiltersTimeout = lasting(sniffTimeout)
	l.ContinueOnListenerFiltersTimeout = true
	l.FilterChains = []*listener.FilterChain{b.requestsByAddress(b.patience), b.bytesByAddress(b.patience)}
	l.DefaultFilterChain = passed()
	return l
}

func sniffedName(port uint16) string { return "outbound_" + strconv.Itoa(int(port)) }

// inner is the listener inside, for services with routes.
func (b *builder) inner() *listener.Listener {
	return &listener.Listener{
		Name:              routed,
		TrafficDirection:  core.TrafficDirection_OUTBOUND,
		ListenerSpecifier: &listener.Listener_InternalListener{InternalListener: &listener.Listener_InternalListenerConfig{}},
		FilterChains:      []*listener.FilterChain{{Name: "http", Filters: []*listener.Filter{b.byService()}}},
	}
}

// listen is a listener on addresses, at least one.
func listen(name string, at ...socket) *listener.Listener {
	l := &listener.Listener{Name: name, Address: at[0].address()}
	for _, s := range at[1:] {
		l.AdditionalAddresses = append(l.AdditionalAddresses, &listener.AdditionalAddress{Address: s.address()})
	}
	return l
}

// headed has the kernel keep a connection from Envoy until its header is there
// (TCP_DEFER_ACCEPT, tcp(7)). The time that a connection has for its first bytes is short,
// for the sake of servers that speak first, and begins when Envoy takes it: an agent that
// hands over thousands at once may be later with a header, and without one the connection
// would be closed; as it is after these seconds, if nothing comes.
func headed(l *listener.Listener) *listener.Listener {
	const tcpLevel, deferAccept, seconds = 6, 9, 3 // IPPROTO_TCP, TCP_DEFER_ACCEPT
	l.SocketOptions = append(l.SocketOptions, &core.SocketOption{
		Description: "wait for the header", Level: tcpLevel, Name: deferAccept, State: core.SocketOption_STATE_LISTENING,
		Value: &core.SocketOption_IntValue{IntValue: seconds},
	})
	return l
}

// closed ends what is addressed to the proxy's own ports: passed on, it would come back,
// and be passed on again.
func closed() []*listener.FilterChain {
	var out []*listener.FilterChain
	for _, port := range own {
		out = append(out, &listener.FilterChain{
			Name:             "closed-" + strconv.Itoa(int(port)),
			FilterChainMatch: &listener.FilterChainMatch{DestinationPort: number(uint32(port))},
			Filters:          []*listener.Filter{network("envoy.filters.network.direct_response", &answer.Config{})},
		})
	}
	return out
}

// requestsByAddress is bytesByAddress for connections that turn out to be HTTP.
func (b *builder) requestsByAddress(wait time.Duration) *listener.FilterChain {
	return &listener.FilterChain{
		Name:             "http",
		FilterChainMatch: &listener.FilterChainMatch{PrefixRanges: b.networks(), ApplicationProtocols: []string{"http/1.0", "http/1.1", "h2c"}},
		Filters:          []*listener.Filter{byAddress(wait)},
	}
}

// bytesByAddress sends connections inside the mesh's networks to the cluster of their
// address.
func (b *builder) bytesByAddress(wait time.Duration) *listener.FilterChain {
	choose := network("envoy.filters.network.set_filter_state", &state.Config{
		OnNewConnection: []*values.FilterStateValue{setState("envoy.tcp_proxy.cluster", byTCP+"%DOWNSTREAM_LOCAL_ADDRESS%")},
	})
	bytes := toCluster(passthrough) // the API wants one; what choose says wins
	bytes.StatPrefix = "outbound"
	bytes.OnDemand = &tcp.TcpProxy_OnDemand{OdcdsConfig: ads(0), Timeout: lasting(wait)}
	return &listener.FilterChain{
		Name:             "tcp",
		FilterChainMatch: &listener.FilterChainMatch{PrefixRanges: b.networks()},
		Filters:          []*listener.Filter{choose, network("envoy.filters.network.tcp_proxy", bytes)},
	}
}

// passed is for destinations outside of the mesh's networks: nobody is asked, nothing
// is remembered.
func passed() *listener.FilterChain {
	return &listener.FilterChain{
		Name:    "passthrough",
		Filters: []*listener.Filter{network("envoy.filters.network.tcp_proxy", toCluster(passthrough))},
	}
}

// toCluster carries bytes for as long as both ends want.
func toCluster(name string) *tcp.TcpProxy {
	return &tcp.TcpProxy{
		StatPrefix:       name,
		ClusterSpecifier: &tcp.TcpProxy_Cluster{Cluster: name},
		IdleTimeout:      lasting(0),
	}
}

func (b *builder) networks() []*core.CidrRange {
	var out []*core.CidrRange
	for _, p := range b.config.Networks {
		out = append(out, cidr(p))
	}
	return out
}

func cidr(p netip.Prefix) *core.CidrRange {
	return &core.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: number(uint32(p.Bits()))}
}

func httpInspector() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.http_inspector", &inspector.HttpInspector{})
}

func originalDestination() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.original_dst", &original.OriginalDst{})
}

// proxyProtocol learns the original destination from a header, and refuses who has none.
func proxyProtocol() *listener.ListenerFilter {
	return listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocol.ProxyProtocol{})
}

func listenerFilter(name string, config proto.Message) *listener.ListenerFilter {
	return &listener.ListenerFilter{Name: name, ConfigType: &listener.ListenerFilter_TypedConfig{TypedConfig: typed(config)}}
}

func network(name string, config proto.Message) *listener.Filter {
	return &listener.Filter{Name: name, ConfigType: &listener.Filter_TypedConfig{TypedConfig: typed(config)}}
}
