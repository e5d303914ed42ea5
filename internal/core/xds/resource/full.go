package resource

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// fullPush returns all resources of a proxy that is not on demand, as Istio does: all
// clusters and endpoints, for each port number with HTTP one listener and one route
// configuration with all hosts, for each other virtual address and port a listener.
func (v *snapshot) fullPush(p *xds.Proxy, typeURL string) []xds.Bundle {
	sh := featuresOf(p)
	switch typeURL {
	case xds.ClusterType:
		out := v.withTracing(p, bundles(v.fixedClusters()))
		for t := range v.targetsByFamily(p) {
			reached := t.forProxy(p)
			out = append(out, v.withEndpoints(p, v.serviceCluster(t.name(), reached, sh, true), reached))
		}
		return out
	case xds.EndpointType:
		var out []xds.Bundle
		for t := range v.targetsByFamily(p) {
			if t.service.External == "" {
				out = append(out, xds.Bundle{Resource: v.endpointsOf(p, t.forProxy(p))})
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
		return bundles(v.listeners(p))
	}
	return nil
}

// targets yields the services' ports that are visible to p, in the order of hosts.
func (v *snapshot) targets(p *xds.Proxy) func(yield func(target) bool) {
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

// targetsByFamily yields the same for each family of the service's addresses. Ports of
// requests come once: requests are routed by host.
func (v *snapshot) targetsByFamily(p *xds.Proxy) func(yield func(target) bool) {
	return func(yield func(target) bool) {
		for t := range v.targets(p) {
			if !yield(t) {
				return
			}
			if v.routedByHost(t) {
				continue
			}
			for _, f := range families(t.service)[1:] {
				if !yield(t.withFamily(f)) {
					return
				}
			}
		}
	}
}

// routedByHost reports whether a port's number has a listener that routes by host.
func (v *snapshot) routedByHost(t target) bool {
	return mayBeHTTP(t.port.Protocol) && slices.Contains(v.ports.sniffed, t.port.Number)
}

func (v *snapshot) httpPorts(p *xds.Proxy) []uint16 {
	var out []uint16
	for t := range v.targets(p) {
		if v.routedByHost(t) {
			out = append(out, t.port.Number)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// routeConfiguration returns that of a port number, "80", with all hosts that have it; or
// that of a service, for a gRPC client.
func (v *snapshot) routeConfiguration(p *xds.Proxy, name string) *xds.Resource {
	if r, ok := parseServiceName(name); ok {
		if t, ok := v.target(r, p.Namespace); ok && t.name() == name {
			return v.routesOf(p, t)
		}
		return nil
	}
	port, ok := parsePort(name)
	if !ok {
		return nil
	}
	return v.hostsOf(p, port)
}

// hostsOf contains every service, so it is cached for one snapshot only. It is the same for
// all proxies of a namespace.
func (v *snapshot) hostsOf(p *xds.Proxy, port uint16) *xds.Resource {
	if !slices.Contains(v.ports.sniffed, port) {
		return v.buildHosts(p, port) // any number may be subscribed: not cached
	}
	return v.hosts.get(hostsKey{port, p.Namespace}, func() *xds.Resource { return v.buildHosts(p, port) })
}

type hostsKey struct {
	port      uint16
	namespace string
}

func (v *snapshot) buildHosts(p *xds.Proxy, port uint16) *xds.Resource {
	name := strconv.Itoa(int(port))
	out := &route.RouteConfiguration{Name: name, ValidateClusters: off()}
	for t := range v.targets(p) {
		if t.port.Number == port && mayBeHTTP(t.port.Protocol) {
			out.VirtualHosts = append(out.VirtualHosts, v.policy(t, p.Namespace).virtualHost(t.name(), v.domains(p, t)...))
		}
	}
	out.VirtualHosts = append(out.VirtualHosts, &route.VirtualHost{
		Name: "passthrough", Domains: []string{"*"}, ResponseHeadersToRemove: []string{unreachedHeader},
		Routes: []*route.Route{{Match: anything(), Action: &route.Route_Route{Route: &route.RouteAction{
			ClusterSpecifier: &route.RouteAction_Cluster{Cluster: passthroughCluster}, Timeout: duration(0),
		}}}},
	})
	return serialize(name, out)
}

// domains returns the forms of a service's name in p's namespace, and its addresses.
func (v *snapshot) domains(p *xds.Proxy, t target) []string {
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

// fullListeners adds those for each port number with HTTP, and for each other virtual address
// and port. Early connections cannot be handed to them; they go by address.
func (v *snapshot) fullListeners(out []*xds.Resource, p *xds.Proxy) []*xds.Resource {
	for _, port := range v.httpPorts(p) {
		out = append(out, v.sniffedListener(port, featuresOf(p)))
	}
	for t := range v.targets(p) {
		for _, a := range t.service.Addresses {
			if v.mesh.ByAddress(a) == t.service {
				out = append(out, v.serviceListener(p, t, socket{a.Unmap(), t.port.Number}))
			}
		}
	}
	return out
}

// sniffs reports whether p has a listener for a port number that has HTTP, or may have it:
// with full push, if a service that is visible to p has.
func (v *snapshot) sniffs(p *xds.Proxy, port uint16) bool {
	if p.OnDemand {
		return slices.Contains(v.ports.sniffed, port)
	}
	for t := range v.targets(p) {
		if t.port.Number == port && v.routedByHost(t) {
			return true
		}
	}
	return false
}

// httpByHost routes the requests to a port number by host.
func httpByHost(port uint16) *listener.FilterChain {
	m := connectionManager("outbound", noCluster, noRoute, timedOut, noEndpoint, refused)
	m.RouteSpecifier = &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: strconv.Itoa(int(port)), ConfigSource: ads(0)}}
	m.HttpFilters = []*hcm.HttpFilter{injectsFaults(), toRouter(outboundRouter())}
	return httpChain(httpManager(m))
}

// The name of a virtual address and port has no colons, as in Istio: "outbound_10.96.0.1_80",
// "outbound_[fd96__1]_80".
var withoutColons, withColons = strings.NewReplacer(":", "_"), strings.NewReplacer("_", ":")

// listenerAt returns the listener of a virtual address and port, as in its name; nil if p has none.
func (v *snapshot) listenerAt(p *xds.Proxy, name string) *xds.Resource {
	a, ok := parseAddress(tcpPrefix + withColons.Replace(name))
	if !ok || strings.Contains(name, ":") {
		return nil
	}
	t, ok := v.serviceAt(p, a.to)
	if !ok || p.OnDemand && !v.hasOwnListener(t) {
		return nil
	}
	return v.serviceListener(p, t, socket{a.to.Addr(), a.to.Port()})
}

// serviceListener is the listener of a virtual address and port; nil for requests, and for a
// port of the proxy itself.
func (v *snapshot) serviceListener(p *xds.Proxy, t target, at socket) *xds.Resource {
	if v.routedByHost(t) || slices.Contains(mesh.ProxyPorts, t.port.Number) {
		return nil
	}
	t = t.withFamily(familyOf(at.host))
	return v.cache.of(t.service).get(serviceKey{at, p.OnDemand, p.Relayed}, func() *xds.Resource {
		name := sniffedPrefix + withoutColons.Replace(netip.AddrPortFrom(at.host, at.port).String())
		l := listen(name, at)
		l.BindToPort = off()
		l.TrafficDirection = core.TrafficDirection_OUTBOUND
		if p.OnDemand {
			l.FilterChains, l.DefaultFilterChain = []*listener.FilterChain{byAddress("tcp", tcpPrefix, toService(passthroughCluster), v.firstUse(featuresOf(p)), v.config.Networks)}, passthroughChain()
		} else {
			l.FilterChains = []*listener.FilterChain{{
				Name: "tcp", Filters: []*listener.Filter{tcpProxy(toService(t.name()))},
			}}
		}
		return serialize(name, v.observe(l, featuresOf(p), nil))
	})
}
