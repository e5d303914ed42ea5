package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/routes"
)

// cluster returns a cluster, with its endpoints if these are a separate resource.
func (v *snapshot) cluster(p *xds.Proxy, name string) xds.Bundle {
	if r := v.fixedCluster(name); r != nil {
		return xds.Bundle{Resource: r}
	}
	if name == names.Tracing {
		return v.collector(p)
	}
	if a, ok := names.ParseAddress(name); ok {
		return v.addressCluster(p, a)
	}
	r, ok := names.ParseService(name)
	if !ok {
		return xds.Bundle{}
	}
	t, ok := v.target(r, p.Namespace)
	if !ok {
		return xds.Bundle{}
	}
	t = forProxy(t, p)
	return v.withEndpoints(p, v.serviceCluster(name, t, features.Of(p), true), t)
}

// addressCluster returns the cluster for an address, by the first rule that matches:
//
//  1. The virtual address of a service that the proxy can see: the service or, if the service has
//     routes for this client or faults, the internal listener.
//  2. The address of a workload: that workload, by mutual TLS if it supports that.
//     In both cases, if the port declares HTTP, the cluster for bytes leads to the internal listener
//     for silent connections.
//  3. Any other address: the address itself. A port that no service has is refused there, as
//     without a proxy.
func (v *snapshot) addressCluster(p *xds.Proxy, a names.Address) xds.Bundle {
	if t, ok := v.serviceAt(p, a.To); ok {
		var out xds.Bundle
		switch {
		case a.Late(t.Port.Protocol):
			return xds.Bundle{Resource: v.lateCluster(a, t), Service: true}
		case a.HTTP() && routes.Routed(t, p.Namespace):
			out = v.internalCluster(p, a, t)
			out.Service = true
		default:
			out = v.withEndpoints(p, v.serviceCluster(a.String(), t, features.Of(p), a.HTTP()), t)
		}
		if a.HTTP() {
			out.Before = append(out.Before, v.tcpCluster(p, a, t))
		}
		return out
	}
	w := v.mesh.Workload(a.To.Addr(), p.Namespace)
	if w == nil || !v.mayIdentify(w, p.Namespace) {
		return v.unknownCluster(a, w == nil)
	}
	port, declared := w.Port(a.To.Port())
	sh, id := features.Of(p).ForClusters(), ""
	if sh.Secrets.Configured() && mtls.Mutual(w, a.To.Port()) {
		id = mtls.Identity(v.config.TrustDomain, w)
	}
	retried := v.serviceNetworks().InRange(a.To.Addr())
	build := func() *xds.Resource {
		if a.Late(port.Protocol) {
			return serialize(a.String(), clusters.Late(a))
		}
		return serialize(a.String(), v.clusters().Workload(a, w, port.Protocol, id, sh, retried))
	}
	if !declared {
		return xds.Bundle{Resource: build()} // not cached, because there may be 65,535 such ports
	}
	return xds.Bundle{Resource: v.cache.of(w).getFor(sh, directKey{a, sh, retried}, build)}
}

// unknownCluster returns the cluster for an address that belongs to nothing in the mesh that the proxy can see.
// It is not cached, because an application that scans addresses would fill the control plane's memory.
func (v *snapshot) unknownCluster(a names.Address, free bool) xds.Bundle {
	c, out := clusters.Direct(a, mesh.HTTP, "", features.Features{}, v.serviceNetworks().InRange(a.To.Addr())), xds.Bundle{}
	s := v.mesh.ByAddress(a.To.Addr())
	if free && (s == nil || s.Port(a.To.Port()) == nil) && v.serviceNetworks().Contains(a.To.Addr()) {
		// The control plane may see a new service, or its port, a moment after the client.
		out.Hold = v.firstUseTimeout / 2
		c.ConnectTimeout = durationpb.New(unknownConnectTimeout)
	}
	out.Resource = serialize(a.String(), c)
	return out
}

// unknownConnectTimeout is for an address at which a service may appear. Until then a connection there is lost,
// and its next attempt finds the service. It can be short, because there is no pod at the address that could
// have queued the connection.
const unknownConnectTimeout = 500 * time.Millisecond

func (v *snapshot) serviceRanges() []netip.Prefix { return v.serviceNetworks().Ranges }
func (v *snapshot) rangesKey() string             { return fmt.Sprint(v.serviceRanges()) }

// internalCluster returns a cluster that leads to the internal listener. The virtual host is sent with
// it, which saves a round trip and moves the wait to the cluster: Envoy has a timeout for that wait,
// but none for virtual hosts.
func (v *snapshot) internalCluster(p *xds.Proxy, a names.Address, t names.Target) xds.Bundle {
	name := a.String()
	out := xds.Bundle{Resource: v.cache.of(t.Service).get(internalKey(a), func() *xds.Resource {
		return serialize(name, clusters.Internal(name, t))
	})}
	host := v.host(p, t.VirtualHost())
	if host.Resource != nil {
		out.Before = append(host.Before, xds.Dependency{Type: xds.VirtualHostType, Resource: host.Resource})
	}
	return out
}

// tcpCluster returns the cluster for bytes of an address that has a cluster for requests. Connections without
// early bytes use it, such as those of pools, which connect before they have a request. It is sent together with
// the cluster for requests, so that a service in use stays reachable by both while the control plane is
// unreachable.
func (v *snapshot) tcpCluster(p *xds.Proxy, a names.Address, t names.Target) xds.Dependency {
	a.Prefix = names.TCP
	if a.Late(t.Port.Protocol) {
		return xds.Dependency{Type: xds.ClusterType, Resource: v.lateCluster(a, t)}
	}
	return xds.Dependency{Type: xds.ClusterType, Resource: v.serviceCluster(a.String(), t, features.Of(p), false)}
}

type (
	internalKey names.Address
	directKey   struct {
		address  names.Address
		features features.Features
		retried  bool
	}
	clusterKey struct {
		name     string
		port     uint16
		family   names.Family
		features features.Features
		requests bool
	}
	endpointsKey struct {
		port   uint16
		family names.Family
		at     mesh.Place
		chosen netip.AddrPort
	}
)

// serviceAt returns the service with a virtual address, if p can see it.
func (v *snapshot) serviceAt(p *xds.Proxy, to netip.AddrPort) (names.Target, bool) {
	s := v.mesh.ByAddress(to.Addr())
	if s == nil {
		return names.Target{}, false
	}
	t, ok := v.target(names.Reference{Host: s.Host, Port: to.Port()}, p.Namespace)
	if !ok {
		return names.Target{}, false
	}
	return t.WithFamily(names.FamilyOf(to.Addr())), true
}

// mayIdentify reports whether a client may learn a workload's identity: it can see one of the workload's
// services, or the workload has no service.
func (v *snapshot) mayIdentify(w *mesh.Workload, namespace string) bool {
	services := v.mesh.ServicesOf(w)
	return len(services) == 0 || slices.ContainsFunc(services, func(s *mesh.Service) bool {
		return v.mesh.Visible(s, namespace)
	})
}

func (v *snapshot) serviceCluster(name string, t names.Target, sh features.Features, requests bool) *xds.Resource {
	sh = sh.ForClusters()
	return v.cache.of(t.Service).getFor(sh, clusterKey{name, t.Port.Number, t.Family, sh, requests}, func() *xds.Resource {
		return serialize(name, v.clusters().Service(name, t, requests, sh))
	})
}

// withEndpoints returns a cluster followed by its endpoints, because Envoy does not subscribe to
// endpoints that it has for another cluster.
func (v *snapshot) withEndpoints(p *xds.Proxy, c *xds.Resource, t names.Target) xds.Bundle {
	b := xds.Bundle{Resource: c, Service: true}
	if t.Service.External == "" {
		b.After = []xds.Dependency{{Type: xds.EndpointType, Resource: v.endpointsOf(p, t), Chosen: t.Service.Affinity}}
	}
	if t.Service.Traffic == mesh.OnlyNode && features.Workload(v.mesh, p) == nil {
		b.Hold = v.firstUseTimeout / 2 // the control plane may see the client's pod, and its node, a moment later
	}
	return b
}

// endpointsOf returns the endpoints of t. If the service prefers near endpoints, or has no others, the result depends
// on the location of p.
func (v *snapshot) endpointsOf(p *xds.Proxy, t names.Target) *xds.Resource {
	key := endpointsKey{t.Port.Number, t.Family, v.place(p, t.Service), netip.AddrPort{}}
	if t.Service.Affinity {
		return v.chosenEndpoints(p, key, t)
	}
	return v.cache.of(t.Service).get(key, func() *xds.Resource {
		return serialize(t.Name(), v.clusters().Endpoints(t.Name(), clusters.EndpointsFor(t, key.at), key.chosen))
	})
}

// place returns the location of p, as far as the endpoints of a service depend on it. Node and zone come
// from objects in the mesh, not from claims, so their number is limited.
func (v *snapshot) place(p *xds.Proxy, s *mesh.Service) mesh.Place {
	if !s.Topological {
		return mesh.Place{}
	}
	return s.Relevant(v.placeOf(p))
}

func (v *snapshot) placeOf(p *xds.Proxy) mesh.Place {
	return v.mesh.PlaceOf(features.Workload(v.mesh, p))
}

// namedEndpoints returns endpoints by name; an empty list if p cannot see the service.
func (v *snapshot) namedEndpoints(p *xds.Proxy, name string) *xds.Resource {
	r, ok := names.ParseService(name)
	if !ok {
		return nil
	}
	t, ok := v.target(r, p.Namespace)
	switch {
	case !ok:
		return serialize(name, &endpoint.ClusterLoadAssignment{ClusterName: name})
	case t.Name() != name: // the name was made while the other family was the primary one
		return serialize(name, v.clusters().Endpoints(name, clusters.EndpointsFor(t, v.place(p, t.Service)), netip.AddrPort{}))
	}
	return v.endpointsOf(p, t)
}

// maxPrewarm limits the clusters for declared dependencies. It suffices for some 250 services.
const maxPrewarm = 1000

// prewarmNames returns the clusters of the services that p declares as dependencies.
func (v *snapshot) prewarmNames(p *xds.Proxy) []string {
	var out []string
	for _, word := range strings.FieldsFunc(p.Metadata[contract.MetadataPrewarm], func(r rune) bool { return r == ',' || r == ' ' }) {
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
		if len(out) >= maxPrewarm {
			break
		}
		for _, port := range s.Ports {
			if number == 0 || number == uint64(port.Number) {
				out = append(out, v.clusterNames(s, port, features.Of(p))...)
			}
		}
	}
	return out
}

// clusterNames returns the clusters that connections to a service's port use.
func (v *snapshot) clusterNames(s *mesh.Service, p mesh.Port, sh features.Features) []string {
	if !p.Protocol.Captured() {
		return nil
	}
	var out []string
	for _, a := range s.Addresses {
		if a = a.Unmap(); a.Is4() && !sh.V4 || a.Is6() && !sh.V6 {
			continue
		}
		to := netip.AddrPortFrom(a, p.Number)
		if routes.MayBeHTTP(p.Protocol) && slices.Contains(v.ports.sniffed, p.Number) {
			out = append(out, names.Address{Prefix: names.HTTP, To: to}.String())
		}
		if !p.Protocol.IsHTTP() { // for HTTP this cluster is sent with the cluster for requests
			out = append(out, names.Address{Prefix: names.TCP, To: to}.String())
		}
	}
	return out
}

// forProxy returns t with the family that p uses. A gRPC client does not subscribe by address, so its target has
// no family: if all addresses of the client are of one family, that family is used.
func forProxy(t names.Target, p *xds.Proxy) names.Target {
	if !p.GRPC || t.Family != names.Primary || len(p.Addresses) == 0 {
		return t
	}
	f := names.FamilyOf(p.Addresses[0])
	for _, a := range p.Addresses {
		if names.FamilyOf(a) != f {
			return t
		}
	}
	return t.WithFamily(f)
}

func (v *snapshot) lateCluster(a names.Address, t names.Target) *xds.Resource {
	return v.cache.of(t.Service).get(lateKey(a), func() *xds.Resource { return serialize(a.String(), clusters.Late(a)) })
}

type lateKey names.Address
