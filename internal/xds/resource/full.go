package resource

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// everything is what a proxy that is not on demand is told, as Istio does it: all
// clusters and endpoints, for each port number with HTTP one listener and one route
// configuration with all hosts, for each other virtual address and port a listener.
func (v *view) everything(p *xds.Proxy, typeURL string) []xds.Bundle {
	sh := shapeOf(p)
	switch typeURL {
	case xds.ClusterType:
		out := answers([]*xds.Resource{v.app()})
		for t := range v.targetsByFamily(p) {
			reached := t.forCaller(p)
			out = append(out, v.withEndpoints(v.serviceCluster(t.name(), reached, sh, true), reached))
		}
		return out
	case xds.EndpointType:
		var out []xds.Bundle
		for t := range v.targetsByFamily(p) {
			if t.service.External == "" {
				out = append(out, xds.Bundle{Resource: v.endpointsOf(t.forCaller(p))})
			}
		}
		return out
	case xds.RouteType:
		var out []xds.Bundle
		for _, port := range v.httpPorts(p) {
			out = append(out, xds.Bundle{Resource: v.hostsOf(p, port)})
		}
		return out
	case xds.ListenerType:
		return answers(v.fullListeners(p, sh))
	}
	return nil
}

// targets are the services' ports that p may see, in the order of hosts.
func (v *view) targets(p *xds.Proxy) func(yield func(target) bool) {
	return func(yield func(target) bool) {
		for _, s := range v.mesh.Services() {
			if !v.mesh.Visible(s, p.Namespace) {
				continue
			}
			for i := range s.Ports {
				if s.Ports[i].Protocol != mesh.UDP && !yield(target{service: s, port: &s.Ports[i]}) {
					return
				}
			}
		}
	}
}

// targetsByFamily are the same, for each family by whose address they are called. Requests
// are not among the second family's: they go by the host that they name.
func (v *view) targetsByFamily(p *xds.Proxy) func(yield func(target) bool) {
	sniffed := v.ports.sniffed()
	return func(yield func(target) bool) {
		for t := range v.targets(p) {
			if !yield(t) {
				return
			}
			if v.byHostName(t, sniffed) {
				continue
			}
			for _, f := range families(t.service)[1:] {
				if !yield(t.in(f)) {
					return
				}
			}
		}
	}
}

// byHostName says whether a port's number has a listener that goes by the host.
func (v *view) byHostName(t target, sniffed []uint16) bool {
	return requests(t.port.Protocol) && slices.Contains(sniffed, t.port.Number)
}

func (v *view) httpPorts(p *xds.Proxy) []uint16 {
	var out []uint16
	sniffed := v.ports.sniffed()
	for t := range v.targets(p) {
		if v.byHostName(t, sniffed) {
			out = append(out, t.port.Number)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// routeConfiguration is that of a port number, "80", with all hosts that have it; or of a
// service, for a gRPC client.
func (v *view) routeConfiguration(p *xds.Proxy, name string) *xds.Resource {
	if r, ok := parseServiceName(name); ok {
		if t, ok := v.target(r, p.Namespace); ok {
			return v.routesOf(p, t)
		}
		return nil
	}
	port, err := strconv.ParseUint(name, 10, 16)
	if err != nil {
		return nil
	}
	return v.hostsOf(p, uint16(port))
}

// hostsOf has every service in it. So it is not kept for longer than a view, but shared:
// it is the same for all proxies of a namespace.
func (v *view) hostsOf(p *xds.Proxy, port uint16) *xds.Resource {
	if !slices.Contains(v.ports.sniffed(), port) {
		return v.buildHosts(p, port) // of any number that somebody asks for, nothing is kept
	}
	return v.hosts.get(hostsKey{port, p.Namespace}, func() *xds.Resource { return v.buildHosts(p, port) })
}

type hostsKey struct {
	port      uint16
	namespace string
}

func (v *view) buildHosts(p *xds.Proxy, port uint16) *xds.Resource {
	name := strconv.Itoa(int(port))
	out := &route.RouteConfiguration{Name: name, ValidateClusters: no()}
	for t := range v.targets(p) {
		if t.port.Number == port && requests(t.port.Protocol) {
			out.VirtualHosts = append(out.VirtualHosts, v.policy(t, p.Namespace).virtualHost(t.name(), v.domains(p, t)...))
		}
	}
	out.VirtualHosts = append(out.VirtualHosts, &route.VirtualHost{
		Name: "passthrough", Domains: []string{"*"},
		Routes: []*route.Route{{Match: anything(), Action: &route.Route_Route{Route: &route.RouteAction{
			ClusterSpecifier: &route.RouteAction_Cluster{Cluster: passthrough}, Timeout: lasting(0),
		}}}},
	})
	return seal(name, out)
}

// domains are the spellings of a service's name in p's namespace, and its addresses.
func (v *view) domains(p *xds.Proxy, t target) []string {
	s := t.service
	names := []string{s.Host}
	if short := s.Name + "." + s.Namespace; s.Host == short+".svc."+v.config.Domain {
		names = append(names, short, short+".svc")
		if s.Namespace == p.Namespace {
			names = append(names, s.Name)
		}
	}
	for _, a := range s.Addresses {
		if a.Is6() {
			names = append(names, "["+a.String()+"]")
		} else {
			names = append(names, a.String())
		}
	}
	for _, n := range names[:len(names):len(names)] {
		names = append(names, n+":"+strconv.Itoa(int(t.port.Number)))
	}
	return names
}

func (v *view) fullListeners(p *xds.Proxy, sh shape) []*xds.Resource {
	out := v.inboundListeners(p, sh)
	main := v.outbound(sh)
	main.FilterChains = closed()
	// What came early cannot be handed to the listeners below; it goes by address.
	list := []*listener.Listener{main, v.early(v.ports.unsniffed())}
	http := v.httpPorts(p)
	for _, port := range http {
		list = append(list, v.byHost(sh, port))
	}
	for t := range v.targets(p) {
		if v.byHostName(t, http) || slices.Contains(own, t.port.Number) {
			continue
		}
		for _, a := range t.service.Addresses {
			list = append(list, toService(t.in(familyOf(a)), a))
		}
	}
	for _, l := range list {
		out = append(out, seal(l.Name, l))
	}
	return out
}

// byHost sends the requests to a port number by the host that they name.
func (v *view) byHost(sh shape, port uint16) *listener.Listener {
	m := connections("outbound", unknown, noRoute, late, empty, refused)
	m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: strconv.Itoa(int(port)), ConfigSource: ads(0)}}
	m.HttpFilters = []*hcm.HttpFilter{toRouter(&router.Router{})}
	l := v.sniffed(sh, port)
	l.FilterChains = l.FilterChains[:1]
	l.FilterChains[0].FilterChainMatch.PrefixRanges = nil
	l.FilterChains[0].Filters = []*listener.Filter{network("envoy.filters.network.http_connection_manager", m)}
	return l
}

// toService is the listener of a virtual address and port.
func toService(t target, a netip.Addr) *listener.Listener {
	to := socket{a.Unmap(), t.port.Number}
	name := strings.ReplaceAll(netip.AddrPortFrom(to.host, to.port).String(), ":", "_")
	l := listen("outbound_"+name, to)
	l.BindToPort = no()
	l.TrafficDirection = core.TrafficDirection_OUTBOUND
	l.FilterChains = []*listener.FilterChain{{
		Name: "tcp", Filters: []*listener.Filter{network("envoy.filters.network.tcp_proxy", toCluster(t.name()))},
	}}
	return l
}
