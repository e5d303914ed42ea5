package resource

import (
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/names"
)

// collector returns the cluster of the collector of spans, if there is one. If the collector is a
// service in the mesh, its endpoints are included, and mutual TLS is used if they have a proxy.
// Otherwise the collector is called in plain text, at the address that the pod's DNS returns.
func (v *snapshot) collector(p *xds.Proxy) xds.Bundle {
	t, f := v.config.Telemetry.Tracing, features.Of(p)
	if !t.On() || f.GRPC {
		return xds.Bundle{}
	}
	protocol := mesh.GRPC
	if t.Path != "" {
		protocol = mesh.HTTP
	}
	if s := v.mesh.Resolve(t.Host, p.Namespace); s != nil && s.External == "" {
		if to, ok := v.target(names.Reference{Host: s.Host, Port: t.Port}, p.Namespace); ok {
			sh := f.ForClusters()
			r := v.cache.of(s).getFor(sh, clusterKey{names.Tracing, t.Port, to.Family, sh, true}, func() *xds.Resource {
				return serialize(names.Tracing, v.clusters().CollectorService(to, protocol, sh))
			})
			return v.withEndpoints(p, r, to)
		}
	}
	return xds.Bundle{Resource: v.shared(names.Tracing, names.Tracing, func() proto.Message {
		return clusters.CollectorHost(t.Host, t.Port, protocol)
	})}
}
