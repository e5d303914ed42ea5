package clusters

import (
	"net/netip"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/observe"
)

// CollectorService returns the cluster of a span collector that is a service of the mesh. Spans are sent to it by
// the protocol p.
func (b Builder) CollectorService(t names.Target, p mesh.Protocol, sh features.Features) *cluster.Cluster {
	port := *t.Port
	port.Protocol, t.Port = p, &port
	c := b.Service(names.Tracing, t, true, sh)
	boundExports(c, p)
	return c
}

// CollectorHost returns the cluster of a span collector outside of the mesh. host is a name or an address.
func CollectorHost(host string, port uint16, p mesh.Protocol) *cluster.Cluster {
	c := newCluster(names.Tracing)
	boundExports(c, p)
	externalCluster(c, host, port)
	if _, err := netip.ParseAddr(host); err == nil {
		c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
	}
	return c
}

// maxExports limits the exports that run at the same time. Envoy makes one export for every five spans. It keeps
// the spans, some 18 KB, until the export has ended, and drops them if it fails.
const maxExports = 100

// boundExports limits exports to a collector that does not answer. Envoy does not apply the timeout of
// a gRPC service to exports, so it is set in the cluster.
func boundExports(c *cluster.Cluster, p mesh.Protocol) {
	t := c.CircuitBreakers.Thresholds[0]
	t.MaxRequests, t.MaxPendingRequests = wrapperspb.UInt32(maxExports), wrapperspb.UInt32(maxExports)
	options := httpOptions(p)
	options.CommonHttpProtocolOptions = &core.HttpProtocolOptions{MaxStreamDuration: durationpb.New(observe.ExportTimeout)}
	c.TypedExtensionProtocolOptions = packed(options)
}
