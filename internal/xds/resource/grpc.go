package resource

import (
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"outrider.dev/internal/xds"
)

// grpcListener is the listener to which a gRPC client subscribes by its target,
// "reviews.shop:80": it has no address, only the name of the routes.
func (v *snapshot) grpcListener(p *xds.Proxy, name string) *xds.Resource {
	t, ok := v.grpcTarget(p, name)
	if !ok {
		return nil
	}
	// Not cached: a target has many spellings, "Reviews.shop.:80" is one.
	return serialize(name, &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: typed(&hcm.HttpConnectionManager{
		StatPrefix:     "grpc",
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: t.name(), ConfigSource: ads(0)}},
		HttpFilters:    []*hcm.HttpFilter{toRouter(&router.Router{})},
	})}})
}

func (v *snapshot) grpcTarget(p *xds.Proxy, name string) (target, bool) {
	host, number, ok := strings.Cut(name, ":")
	port, known := parsePort(number)
	s := v.mesh.Resolve(host, p.Namespace)
	if !ok || !known || s == nil {
		return target{}, false
	}
	return v.target(reference{host: s.Host, port: port}, p.Namespace)
}

// routesOf is the route configuration of one service's port.
func (v *snapshot) routesOf(p *xds.Proxy, t target) *xds.Resource {
	pol := v.policy(t, p.Namespace)
	return v.cache.of(t.service).get(hostKey{t.port.Number, pol.key(), t.name()}, func() *xds.Resource {
		return serialize(t.name(), &route.RouteConfiguration{
			Name: t.name(), ValidateClusters: off(),
			VirtualHosts: []*route.VirtualHost{pol.virtualHost(t.name(), "*")},
		})
	})
}
