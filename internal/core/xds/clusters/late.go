package clusters

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	internalup "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/internal_upstream/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	metadata "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
)

// originalDst is the metadata namespace for the addresses that the filter original_dst gives to a
// connection in an internal listener.
const originalDst = "envoy.filters.listener.original_dst"

// Late returns the cluster for an address that leads to the internal listener [names.Late]. The endpoint's
// metadata contain the address.
func Late(a names.Address) *cluster.Cluster {
	c, e := toInternalListener(a.String(), names.Late, a.To.String())
	c.AltStatName = names.Late
	c.TransportSocket = message.TransportSocket("internal_upstream", &internalup.InternalUpstreamTransport{
		PassthroughMetadata: []*internalup.InternalUpstreamTransport_MetadataValueSource{{
			Kind: &metadata.MetadataKind{Kind: &metadata.MetadataKind_Host_{Host: &metadata.MetadataKind_Host{}}},
			Name: originalDst,
		}},
		TransportSocket: message.TransportSocket("raw_buffer", &rawbuffer.RawBuffer{}),
	})
	e.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		originalDst: {Fields: map[string]*structpb.Value{"local": structpb.NewStringValue(a.To.String())}},
	}}
	return c
}
