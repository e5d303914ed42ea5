package resource

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	values "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	inspector "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	state "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	internalup "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	metadata "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/core/xds"
)

// A listener with a socket waits sniffTimeout for the first bytes of a connection, because
// the server may be the one that sends first. Where a declaration says that the client does,
// a connection that is silent for so long goes on to an internal listener, which waits for
// the bytes. It has no connection to the server meanwhile.

// lateTimeout bounds that wait where the client is another machine, which may be gone: an
// hour, as Envoy's own idle timeout of HTTP connections.
const lateTimeout = time.Hour

// originalDst is the namespace of the addresses that the filter original_dst gives a
// connection in an internal listener.
const originalDst = "envoy.filters.listener.original_dst"

// lateListener serves the silent connections of the application to ports that declare HTTP.
// Its wait has no limit: when the application ends, its connections do.
func (v *snapshot) lateListener(sh features) *listener.Listener {
	l := internal(lateName, core.TrafficDirection_OUTBOUND)
	l.ListenerFilters = []*listener.ListenerFilter{originalDestination(), httpInspector()}
	l.ListenerFiltersTimeout = duration(0)
	l.FilterChains = append([]*listener.FilterChain{v.httpByAddress(v.firstUse(sh))}, v.bytesByAddress(rawPrefix, v.firstUse(sh))...)
	return l
}

func (v *snapshot) lateResource(f features) *xds.Resource {
	return v.shared(lateName, outboundKey{lateName, features{relayed: f.relayed, sampling: f.sampling}, v.rangesKey()}, func() proto.Message { return v.observe(v.lateListener(f), f, nil) })
}

// lateTo is the cluster of an address that leads to that listener. The endpoint's metadata
// carries the address.
func lateTo(a address) *cluster.Cluster {
	c, e := toInternalListener(a.String(), lateName, a.to.String())
	c.AltStatName = lateName
	c.TransportSocket = transportSocket("internal_upstream", &internalup.InternalUpstreamTransport{
		PassthroughMetadata: []*internalup.InternalUpstreamTransport_MetadataValueSource{{
			Kind: &metadata.MetadataKind{Kind: &metadata.MetadataKind_Host_{Host: &metadata.MetadataKind_Host{}}},
			Name: originalDst,
		}},
		TransportSocket: transportSocket("raw_buffer", &rawbuffer.RawBuffer{}),
	})
	e.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		originalDst: {Fields: map[string]*structpb.Value{"local": structpb.NewStringValue(a.to.String())}},
	}}
	return c
}

func (v *snapshot) lateCluster(a address, t target) *xds.Resource {
	return v.cache.of(t.service).get(lateKey(a), func() *xds.Resource { return serialize(a.String(), lateTo(a)) })
}

type lateKey address

// lateInbound serves the silent connections to ports of the application on which the client
// sends first, in plain text or by mutual TLS.
func (b *builder) lateInbound(f features, ports []inboundPort, g guard) *listener.Listener {
	l := internal(lateInboundName, core.TrafficDirection_INBOUND)
	l.ListenerFilters = []*listener.ListenerFilter{originalDestination(), listenerFilter("envoy.filters.listener.tls_inspector", &inspector.TlsInspector{})}
	l.ListenerFiltersTimeout = duration(lateTimeout)
	l.FilterChains = rejectOwnPorts()
	for _, p := range ports {
		if p.clientFirst {
			l.FilterChains = append(l.FilterChains, b.chains(f, p, g)...)
		}
	}
	return l
}

// lateInboundCluster leads to that listener. The connection's filter state carries its
// addresses, see toLateInbound.
func lateInboundCluster() *cluster.Cluster {
	c, _ := toInternalListener(lateInboundName, lateInboundName, "")
	c.TransportSocket = transportSocket("internal_upstream", &internalup.InternalUpstreamTransport{
		TransportSocket: transportSocket("raw_buffer", &rawbuffer.RawBuffer{}),
	})
	return c
}

// toLateInbound are the filters that send a connection to the internal listener.
func toLateInbound() []*listener.Filter {
	local := setState(originalDst+".local_ip", "%DOWNSTREAM_LOCAL_ADDRESS%")
	remote := setState(originalDst+".remote_ip", "%DOWNSTREAM_REMOTE_ADDRESS%")
	local.SharedWithUpstream, remote.SharedWithUpstream = values.FilterStateValue_ONCE, values.FilterStateValue_ONCE
	return []*listener.Filter{
		network("envoy.filters.network.set_filter_state", &state.Config{OnNewConnection: []*values.FilterStateValue{
			local, remote, setState(tcpClusterState, lateInboundName), // see notSilent
		}}),
		tcpProxy(toCluster(lateInboundName)),
	}
}

func transportSocket(name string, config proto.Message) *core.TransportSocket {
	return &core.TransportSocket{Name: "envoy.transport_sockets." + name, ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: typed(config)}}
}
