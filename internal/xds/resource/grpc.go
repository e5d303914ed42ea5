package resource

import (
	"strconv"
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"outrider.dev/internal/xds"
)

// forClient is the listener that a gRPC client asks for by its target, "reviews.shop:80":
// it listens nowhere and says where the routes are.
func (v *view) forClient(p *xds.Proxy, name string) *xds.Resource {
	t, ok := v.dialled(p, name)
	if !ok {
		return nil
	}
	return v.kept.service(t.service).get(clientKey(name), func() *xds.Resource {
		return seal(name, &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: typed(&hcm.HttpConnectionManager{
			StatPrefix:     "grpc",
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: t.name(), ConfigSource: ads(0)}},
			HttpFilters:    []*hcm.HttpFilter{toRouter(&router.Router{})},
		})}})
	})
}

type clientKey string // the target

func (v *view) dialled(p *xds.Proxy, name string) (target, bool) {
	host, number, ok := strings.Cut(name, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	s := v.mesh.Resolve(host, p.Namespace)
	if !ok || err != nil || s == nil {
		return target{}, false
	}
	return v.target(reference{host: s.Host, port: uint16(port)}, p.Namespace)
}

// routesOf is the route configuration of one service's port, under the service's name.
func (v *view) routesOf(p *xds.Proxy, t target) *xds.Resource {
	pol := v.policy(t, p.Namespace)
	return v.kept.service(t.service).get(hostKey{t.port.Number, pol.seenBy(), t.name()}, func() *xds.Resource {
		return seal(t.name(), &route.RouteConfiguration{
			Name: t.name(), ValidateClusters: no(),
			VirtualHosts: []*route.VirtualHost{pol.virtualHost(t.name(), "*")},
		})
	})
}
