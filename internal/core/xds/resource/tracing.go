package resource

import (
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/names"
)

// tracingBundle returns the cluster of the collector. If that is a service in the mesh, its endpoints
// are included, and mutual TLS is used if they have a proxy. Otherwise it is called in plain text, at
// the address that the pod's DNS returns.
func (v *snapshot) tracingBundle(p *xds.Proxy) (xds.Bundle, bool) {
	t := v.config.Telemetry.Tracing
	f := features.Of(p)
	if !t.On() || f.GRPC {
		return xds.Bundle{}, false
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
			return v.withEndpoints(p, r, to), true
		}
	}
	return xds.Bundle{Resource: v.shared(names.Tracing, names.Tracing, func() proto.Message {
		return clusters.CollectorHost(t.Host, t.Port, protocol)
	})}, true
}

// withTracing adds the cluster of the collector, if there is one.
func (v *snapshot) withTracing(p *xds.Proxy, out []xds.Bundle) []xds.Bundle {
	if b, ok := v.tracingBundle(p); ok {
		out = append(out, b)
	}
	return out
}
