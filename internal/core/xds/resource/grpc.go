package resource

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/listeners"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/routes"
)

// grpcListener returns the listener to which a gRPC client subscribes by its target, "reviews.shop:80"
// or "reviews". It has no address, but only the name of its routes.
//
// If a listener exists and its routes do not match the target, a gRPC client fails the call at once. If no
// listener exists, the client waits 15 s, because the state-of-the-world protocol cannot report that a resource
// is missing.
func (v *snapshot) grpcListener(p *xds.Proxy, name string) *xds.Resource {
	// Not cached, because a target has many aliases, such as "Reviews.shop.:80".
	m := &hcm.HttpConnectionManager{StatPrefix: "grpc", HttpFilters: []*hcm.HttpFilter{routes.InjectsFaults(), listeners.ToRouter(&router.Router{})}}
	t, unknown := v.grpcTarget(p, name)
	switch {
	case unknown == "":
		m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: t.Name(), ConfigSource: message.ADS(0)}}
	case p.GRPC:
		m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
			Name: "not-found", VirtualHosts: []*route.VirtualHost{{Name: "not-found", Domains: []string{"not-found.invalid"}}},
		}}
	default:
		return nil
	}
	return serialize(name, &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: message.Typed(m)}})
}

// grpcTarget returns the service's port that a target names, or says why there is none.
func (v *snapshot) grpcTarget(p *xds.Proxy, name string) (t names.Target, unknown string) {
	host, number, hasPort := strings.Cut(name, ":")
	s := v.mesh.Resolve(host, p.Namespace)
	if s == nil {
		return names.Target{}, fmt.Sprintf("no service %q is visible in the namespace %s", host, p.Namespace)
	}
	port, ok := names.ParsePort(number)
	if !hasPort {
		port, ok = onlyPort(s)
	}
	if t, found := v.target(names.Reference{Host: s.Host, Port: port}, p.Namespace); ok && found {
		return t, ""
	}
	var ports []string
	for _, p := range mesh.Captured(s.Ports) {
		ports = append(ports, strconv.Itoa(int(p.Number)))
	}
	return names.Target{}, fmt.Sprintf("%s has the ports %s: the target must name one of them", s.Host, cmp.Or(strings.Join(ports, ", "), "(none)"))
}

// onlyPort returns the port for a target without one: the only port that declares HTTP/2 or gRPC, or
// else the only TCP port.
func onlyPort(s *mesh.Service) (uint16, bool) {
	for _, fits := range []func(mesh.Protocol) bool{
		func(p mesh.Protocol) bool { return p == mesh.GRPC || p == mesh.HTTP2 },
		mesh.Protocol.Captured,
	} {
		var found []uint16
		for _, p := range s.Ports {
			if fits(p.Protocol) {
				found = append(found, p.Number)
			}
		}
		if len(found) > 0 {
			return found[0], len(found) == 1
		}
	}
	return 0, false
}

// routesOf returns the route configuration for one service's port; nil if there is none with this name.
func (v *snapshot) routesOf(p *xds.Proxy, name string) *xds.Resource {
	r, ok := names.ParseService(name)
	t, found := v.target(r, p.Namespace)
	if !ok || !found || t.Name() != name {
		return nil
	}
	pol := v.policy(t, p.Namespace)
	return v.cache.of(t.Service).get(hostKey{t.Port.Number, pol.Key(), t.Name()}, func() *xds.Resource {
		return serialize(t.Name(), &route.RouteConfiguration{
			Name: t.Name(), ValidateClusters: wrapperspb.Bool(false),
			VirtualHosts: []*route.VirtualHost{pol.VirtualHost(t.Name(), "*")},
		})
	})
}
