package resource

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	internalup "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	metadata "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/core/xds"
)

// A listener for a port number waits sniffTimeout for the first bytes of a connection, because the
// server may be the one that speaks first. If the service declares HTTP, a connection that stays silent
// goes on to an internal listener, which waits for the bytes without connecting to the server.

// originalDst is the metadata namespace for the addresses that the filter original_dst gives to a
// connection in an internal listener.
const originalDst = "envoy.filters.listener.original_dst"

// lateListener serves the application's silent connections to ports that declare HTTP. It waits without
// a limit; the connections end with the application.
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

// lateTo returns the cluster for an address that leads to lateListener. Metadata of the endpoint
// contain the address.
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

func transportSocket(name string, config proto.Message) *core.TransportSocket {
	return &core.TransportSocket{Name: "envoy.transport_sockets." + name, ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: typed(config)}}
}
