package resource

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// cluster answers for a cluster, with its endpoints if they come apart from it.
func (v *view) cluster(p *xds.Proxy, name string) xds.Bundle {
	if name == toApp {
		return xds.Bundle{Resource: v.app()}
	}
	if a, ok := parseAddress(name); ok {
		return v.addressed(p, a)
	}
	r, ok := parseServiceName(name)
	if !ok {
		return xds.Bundle{}
	}
	t, ok := v.target(r, p.Namespace)
	if !ok {
		return xds.Bundle{}
	}
	t = t.forCaller(p)
	return v.withEndpoints(v.serviceCluster(name, t, shapeOf(p), true), t)
}

// addressed answers for the cluster of an address: what the first of these says.
//
//  1. The virtual address of a service that the proxy may see: the service, or the
//     listener inside, if routes hold for this client.
//  2. The address of a workload: that workload, by mutual TLS if it takes that.
//  3. Any other: that address. A port that no service has is refused by who has the
//     address, as without a proxy.
func (v *view) addressed(p *xds.Proxy, a address) xds.Bundle {
	if t, ok := v.behind(p, a.to); ok {
		var out xds.Bundle
		if a.http && len(t.service.RoutesFor(p.Namespace, t.port.Number)) > 0 {
			out = v.inside(p, a, t)
		} else {
			out = v.withEndpoints(v.serviceCluster(a.String(), t, shapeOf(p), a.http), t)
		}
		if a.http {
			out.Before = append(out.Before, v.silent(p, a, t))
		}
		return out
	}
	v.asked.add(a.to.Addr(), a.String())
	w := v.mesh.Workload(a.to.Addr())
	if w == nil || !v.known(w, p.Namespace) {
		// Not kept: an application that tries many addresses would fill the control plane's
		// memory too.
		return xds.Bundle{Resource: seal(a.String(), direct(a, mesh.HTTP, "", shape{}))}
	}
	sh, id := shapeOf(p).calling(), ""
	if sh.secrets.some() && mutual(w, a.to.Port()) {
		id = identity(v.config.TrustDomain, w)
	}
	return xds.Bundle{Resource: v.kept.workload(w).get(directKey{a, sh}, func() *xds.Resource {
		port, _ := appPort(w, a.to.Port())
		return seal(a.String(), direct(a, port.Protocol, id, sh))
	})}
}

// inside answers with a cluster that leads to the listener inside. The virtual host that
// will be asked for there is told along with it: one question less, and the connection
// that waits for the cluster is bound in time where one that waits for a virtual host is not.
func (v *view) inside(p *xds.Proxy, a address, t target) xds.Bundle {
	name := a.String()
	out := xds.Bundle{Resource: v.kept.service(t.service).get(insideKey(a), func() *xds.Resource {
		return seal(name, inside(name, t))
	})}
	host := v.host(p, t.virtualHost())
	if host.Resource != nil {
		out.Before = append(host.Before, xds.Dependency{Type: xds.VirtualHostType, Resource: host.Resource})
	}
	return out
}

// silent is the cluster of the same address for a connection that says nothing in time
// and is taken for bytes: pools connect before they have a request. It is told along, so
// that a service in use stays known both ways when the control plane is gone.
func (v *view) silent(p *xds.Proxy, a address, t target) xds.Dependency {
	a.http = false
	return xds.Dependency{Type: xds.ClusterType, Resource: v.serviceCluster(a.String(), t, shapeOf(p), false)}
}

type (
	insideKey address
	directKey struct {
		address address
		shape   shape
	}
	clusterKey struct {
		name     string
		port     uint16
		family   family
		shape    shape
		requests bool
	}
	endpointsKey struct {
		port   uint16
		family family
	}
)

// behind finds the service of a virtual address that p may see.
func (v *view) behind(p *xds.Proxy, to netip.AddrPort) (target, bool) {
	s := v.mesh.ByAddress(to.Addr())
	if s == nil {
		return target{}, false
	}
	t, ok := v.target(reference{host: s.Host, port: to.Port()}, p.Namespace)
	if !ok {
		return target{}, false
	}
	return t.in(familyOf(to.Addr())), true
}

// known says whether a client may know who a workload is: it may see one of the
// services in front of it, or there is none.
func (v *view) known(w *mesh.Workload, namespace string) bool {
	services := v.mesh.ServicesOf(w)
	return len(services) == 0 || slices.ContainsFunc(services, func(s *mesh.Service) bool {
		return v.mesh.Visible(s, namespace)
	})
}

func (v *view) serviceCluster(name string, t target, sh shape, requests bool) *xds.Resource {
	sh = sh.calling()
	return v.kept.service(t.service).get(clusterKey{name, t.port.Number, t.family, sh, requests}, func() *xds.Resource {
		return seal(name, v.service(name, t, requests, sh))
	})
}

// withEndpoints answers with a cluster, and right behind it its endpoints: Envoy does not
// ask for those that it has for another cluster.
func (v *view) withEndpoints(c *xds.Resource, t target) xds.Bundle {
	a := xds.Bundle{Resource: c}
	if t.service.External == "" {
		a.After = []xds.Dependency{{Type: xds.EndpointType, Resource: v.endpointsOf(t)}}
	}
	return a
}

func (v *view) endpointsOf(t target) *xds.Resource {
	return v.kept.service(t.service).get(endpointsKey{t.port.Number, t.family}, func() *xds.Resource {
		return seal(t.name(), v.endpoints(t.name(), t))
	})
}

// endpointsNamed answers for endpoints: there are none of what p may not see.
func (v *view) endpointsNamed(p *xds.Proxy, name string) *xds.Resource {
	r, ok := parseServiceName(name)
	if !ok {
		return nil
	}
	t, ok := v.target(r, p.Namespace)
	switch {
	case !ok:
		return seal(name, &endpoint.ClusterLoadAssignment{ClusterName: name})
	case t.name() != name: // the family was not the service's first when the name was made
		return seal(name, v.endpoints(name, t))
	}
	return v.endpointsOf(t)
}

// prewarmed are the clusters of the services that p declares to use.
func (v *view) prewarmed(p *xds.Proxy) []string {
	var out []string
	for _, word := range strings.FieldsFunc(p.Metadata[MetadataPrewarm], func(r rune) bool { return r == ',' || r == ' ' }) {
		host, number := word, uint64(0)
		if i := strings.LastIndexByte(word, ':'); i >= 0 {
			n, err := strconv.ParseUint(word[i+1:], 10, 16)
			if err != nil {
				continue
			}
			host, number = word[:i], n
		}
		s := v.mesh.Resolve(host, p.Namespace)
		if s == nil {
			continue
		}
		for _, port := range s.Ports {
			if number == 0 || number == uint64(port.Number) {
				out = append(out, v.names(s, port, shapeOf(p))...)
			}
		}
	}
	return out
}

// names are the clusters that a connection to a service's port is expected to ask for.
func (v *view) names(s *mesh.Service, p mesh.Port, sh shape) []string {
	if p.Protocol == mesh.UDP {
		return nil
	}
	var out []string
	for _, a := range s.Addresses {
		if a = a.Unmap(); a.Is4() && !sh.v4 || a.Is6() && !sh.v6 {
			continue
		}
		to := netip.AddrPortFrom(a, p.Number)
		if requests(p.Protocol) && slices.Contains(v.ports.sniffed(), p.Number) {
			out = append(out, address{true, to}.String())
		}
		if !p.Protocol.IsHTTP() {
			out = append(out, address{false, to}.String())
		}
	}
	return out
}
