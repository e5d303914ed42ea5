package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// cluster returns a cluster, with its endpoints if they are a resource of their own.
func (v *snapshot) cluster(p *xds.Proxy, name string) xds.Bundle {
	if r := v.fixedCluster(name); r != nil {
		return xds.Bundle{Resource: r}
	}
	if name == tracingCluster {
		b, _ := v.tracingBundle(p)
		return b
	}
	if a, ok := parseAddress(name); ok {
		return v.addressCluster(p, a)
	}
	r, ok := parseServiceName(name)
	if !ok {
		return xds.Bundle{}
	}
	t, ok := v.target(r, p.Namespace)
	if !ok {
		return xds.Bundle{}
	}
	t = t.forProxy(p)
	return v.withEndpoints(p, v.serviceCluster(name, t, featuresOf(p), true), t)
}

// addressCluster returns the cluster of an address, by the first rule that matches:
//
//  1. The virtual address of a service that is visible to the proxy: the service, or the
//     internal listener, if the service has routes for this client, or faults.
//  2. The address of a workload: that workload, by mutual TLS if it supports that.
//     In both cases a port that declares HTTP has the internal listener for silent
//     connections in place of the cluster for bytes.
//  3. Any other: that address. A port that no service has is refused at the address, as
//     without a proxy.
func (v *snapshot) addressCluster(p *xds.Proxy, a address) xds.Bundle {
	if t, ok := v.serviceAt(p, a.to); ok {
		var out xds.Bundle
		switch {
		case a.late(t.port.Protocol):
			return xds.Bundle{Resource: v.lateCluster(a, t), Service: true}
		case a.http() && t.routed(p.Namespace):
			out = v.internalCluster(p, a, t)
			out.Service = true
		default:
			out = v.withEndpoints(p, v.serviceCluster(a.String(), t, featuresOf(p), a.http()), t)
		}
		if a.http() {
			out.Before = append(out.Before, v.tcpCluster(p, a, t))
		}
		return out
	}
	w := v.mesh.Workload(a.to.Addr(), p.Namespace)
	if w == nil || !v.mayIdentify(w, p.Namespace) {
		return v.unknownCluster(a, w == nil)
	}
	port, declared := appPort(w, a.to.Port())
	sh, id := featuresOf(p).forClusters(), ""
	if sh.secrets.configured() && mutual(w, a.to.Port()) {
		id = identity(v.config.TrustDomain, w)
	}
	retried := v.inServiceRange(a.to.Addr())
	build := func() *xds.Resource {
		if a.late(port.Protocol) {
			return serialize(a.String(), lateTo(a))
		}
		c := directCluster(a, port.Protocol, id, sh, retried)
		v.describeWorkload(c.LoadAssignment.Endpoints[0].LbEndpoints[0], w)
		return serialize(a.String(), c)
	}
	if !declared {
		return xds.Bundle{Resource: build()} // one of 65,535: not cached either
	}
	return xds.Bundle{Resource: v.cache.of(w).getFor(sh, directKey{a, sh, retried}, build)}
}

// unknownCluster is that of an address of which the proxy may know nothing. It is not cached: an
// application that scans addresses would fill the control plane's memory too.
func (v *snapshot) unknownCluster(a address, free bool) xds.Bundle {
	c, out := directCluster(a, mesh.HTTP, "", features{}, v.inServiceRange(a.to.Addr())), xds.Bundle{}
	s := v.mesh.ByAddress(a.to.Addr())
	if free && (s == nil || s.Port(a.to.Port()) == nil) && v.inServiceNetwork(a.to.Addr()) {
		// Perhaps the control plane sees the service, or its port, a moment after the client.
		out.Hold = v.firstUseTimeout / 2
		c.ConnectTimeout = duration(unknownConnectTimeout)
	}
	out.Resource = serialize(a.String(), c)
	return out
}

// unknownConnectTimeout is that of an address at which a service may appear. As long as it has
// none a connection there is lost, and its next try finds the service. No pod is behind the
// address that may have parked the connection.
const unknownConnectTimeout = 500 * time.Millisecond

// inServiceNetwork reports whether an address is among those of the services: in the smallest
// network that has all blocks of them, within a /12 or, for IPv6, a /108, the largest that
// Kubernetes takes for services.
func (v *snapshot) inServiceNetwork(a netip.Addr) bool {
	within, _ := a.Prefix(serviceNetworkBits(a))
	n, ok := v.serviceNetworks().within[within]
	return ok && n.smallest.Contains(a)
}

// inServiceRange reports whether a failed connection to an address is tried again.
func (v *snapshot) inServiceRange(a netip.Addr) bool {
	return slices.ContainsFunc(v.serviceRanges(), func(r netip.Prefix) bool { return r.Contains(a) })
}

func (v *snapshot) serviceRanges() []netip.Prefix { return v.serviceNetworks().ranges }
func (v *snapshot) rangesKey() string             { return fmt.Sprint(v.serviceRanges()) }

func serviceNetworkBits(a netip.Addr) int {
	if a.Is4() {
		return 12
	}
	return 108
}

// serviceNetworks are those of the services' virtual addresses.
type serviceNetworks struct {
	within map[netip.Prefix]serviceNetwork // by the largest network that each is in
	ranges []netip.Prefix                  // as listeners have them
}

type serviceNetwork struct {
	smallest netip.Prefix // that has all blocks
	first    netip.Prefix // the /16 or, for IPv6, /112 of the lowest block
}

// listServiceNetworks goes through the blocks of virtual addresses.
func (v *snapshot) listServiceNetworks() serviceNetworks {
	out := serviceNetworks{within: map[netip.Prefix]serviceNetwork{}}
	for block := range v.away.networks.virtual { // any order: the smallest network is one, and so is the lowest block
		within, _ := block.Addr().Prefix(serviceNetworkBits(block.Addr()))
		first, _ := block.Addr().Prefix(serviceNetworkBits(block.Addr()) + 4)
		n, ok := out.within[within]
		if !ok {
			n = serviceNetwork{block, first}
		}
		for !n.smallest.Contains(block.Addr()) {
			n.smallest = parent(n.smallest)
		}
		if first.Addr().Less(n.first.Addr()) {
			n.first = first
		}
		out.within[within] = n
	}
	for within, n := range out.within { // any order: the ranges are sorted
		out.ranges = append(out.ranges, v.inside(n.first)...)
		if n.smallest.Bits() < n.first.Bits() {
			out.ranges = append(out.ranges, v.inside(within)...)
		}
	}
	slices.SortFunc(out.ranges, netip.Prefix.Compare)
	out.ranges = slices.Compact(out.ranges)
	out.ranges = out.ranges[:min(len(out.ranges), maxServiceRanges)]
	return out
}

// maxServiceRanges bounds the filter chains of a listener. A cluster has one range or two for each
// family; Hosts may have virtual addresses elsewhere. Beyond it a connection is tried once.
const maxServiceRanges = 16

// inside returns a range or the first of the mesh's networks that overlaps it, whichever is
// smaller; nothing if none does.
func (v *snapshot) inside(r netip.Prefix) []netip.Prefix {
	for _, n := range v.config.Networks {
		if r.Overlaps(n) {
			if n.Bits() > r.Bits() {
				r = n.Masked()
			}
			return []netip.Prefix{r}
		}
	}
	return nil
}

// internalCluster returns a cluster that leads to the internal listener. The virtual host
// is sent with it: that saves a round trip, and the wait for a cluster has a timeout, the
// one for a virtual host has none.
func (v *snapshot) internalCluster(p *xds.Proxy, a address, t target) xds.Bundle {
	name := a.String()
	out := xds.Bundle{Resource: v.cache.of(t.service).get(internalKey(a), func() *xds.Resource {
		return serialize(name, internalTo(name, t))
	})}
	host := v.host(p, t.virtualHost())
	if host.Resource != nil {
		out.Before = append(host.Before, xds.Dependency{Type: xds.VirtualHostType, Resource: host.Resource})
	}
	return out
}

// tcpCluster returns the cluster of the same address for a connection without early bytes:
// pools connect before they have a request. It is sent along, so that a service in use stays
// reachable both ways when the control plane is gone.
func (v *snapshot) tcpCluster(p *xds.Proxy, a address, t target) xds.Dependency {
	a.prefix = tcpPrefix
	if a.late(t.port.Protocol) {
		return xds.Dependency{Type: xds.ClusterType, Resource: v.lateCluster(a, t)}
	}
	return xds.Dependency{Type: xds.ClusterType, Resource: v.serviceCluster(a.String(), t, featuresOf(p), false)}
}

type (
	internalKey address
	directKey   struct {
		address  address
		features features
		retried  bool
	}
	clusterKey struct {
		name     string
		port     uint16
		family   family
		features features
		requests bool
	}
	endpointsKey struct {
		port   uint16
		family family
		at     mesh.Place
	}
)

// serviceAt returns the service of a virtual address, if it is visible to p.
func (v *snapshot) serviceAt(p *xds.Proxy, to netip.AddrPort) (target, bool) {
	s := v.mesh.ByAddress(to.Addr())
	if s == nil {
		return target{}, false
	}
	t, ok := v.target(reference{host: s.Host, port: to.Port()}, p.Namespace)
	if !ok {
		return target{}, false
	}
	return t.withFamily(familyOf(to.Addr())), true
}

// mayIdentify reports whether a client may learn a workload's identity: one of its services
// is visible to the client, or it has no service.
func (v *snapshot) mayIdentify(w *mesh.Workload, namespace string) bool {
	services := v.mesh.ServicesOf(w)
	return len(services) == 0 || slices.ContainsFunc(services, func(s *mesh.Service) bool {
		return v.mesh.Visible(s, namespace)
	})
}

func (v *snapshot) serviceCluster(name string, t target, sh features, requests bool) *xds.Resource {
	sh = sh.forClusters()
	return v.cache.of(t.service).getFor(sh, clusterKey{name, t.port.Number, t.family, sh, requests}, func() *xds.Resource {
		return serialize(name, v.serviceEDS(name, t, requests, sh))
	})
}

// withEndpoints returns a cluster, followed by its endpoints: Envoy does not subscribe to
// those that it has for another cluster.
func (v *snapshot) withEndpoints(p *xds.Proxy, c *xds.Resource, t target) xds.Bundle {
	b := xds.Bundle{Resource: c, Service: true}
	if t.service.External == "" {
		b.After = []xds.Dependency{{Type: xds.EndpointType, Resource: v.endpointsOf(p, t)}}
	}
	return b
}

// endpointsOf depends on where p is, if the service prefers endpoints that are near.
func (v *snapshot) endpointsOf(p *xds.Proxy, t target) *xds.Resource {
	at := v.place(p, t.service)
	return v.cache.of(t.service).get(endpointsKey{t.port.Number, t.family, at}, func() *xds.Resource {
		return serialize(t.name(), v.endpoints(t.name(), t, at))
	})
}

// place is where p is, as far as the endpoints of a service depend on it. Both are objects of
// the mesh, not claims: so their number is bounded.
func (v *snapshot) place(p *xds.Proxy, s *mesh.Service) mesh.Place {
	if !s.Topological {
		return mesh.Place{}
	}
	return s.Relevant(v.mesh.PlaceOf(workload(v.mesh, p)))
}

// namedEndpoints returns endpoints; an empty list for a service that is not visible to p.
func (v *snapshot) namedEndpoints(p *xds.Proxy, name string) *xds.Resource {
	r, ok := parseServiceName(name)
	if !ok {
		return nil
	}
	t, ok := v.target(r, p.Namespace)
	switch {
	case !ok:
		return serialize(name, &endpoint.ClusterLoadAssignment{ClusterName: name})
	case t.name() != name: // the primary family was another when the name was made
		return serialize(name, v.endpoints(name, t, v.place(p, t.service)))
	}
	return v.endpointsOf(p, t)
}

// maxPrewarm bounds the clusters of declared dependencies: those of some 250 services.
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
				out = append(out, v.clusterNames(s, port, featuresOf(p))...)
			}
		}
	}
	return out
}

// clusterNames returns the clusters that a connection to a service's port uses.
func (v *snapshot) clusterNames(s *mesh.Service, p mesh.Port, sh features) []string {
	if p.Protocol == mesh.UDP {
		return nil
	}
	var out []string
	for _, a := range s.Addresses {
		if a = a.Unmap(); a.Is4() && !sh.v4 || a.Is6() && !sh.v6 {
			continue
		}
		to := netip.AddrPortFrom(a, p.Number)
		if mayBeHTTP(p.Protocol) && slices.Contains(v.ports.sniffed, p.Number) {
			out = append(out, address{httpPrefix, to}.String())
		}
		if !p.Protocol.IsHTTP() { // else it comes with the one for requests
			out = append(out, address{tcpPrefix, to}.String())
		}
	}
	return out
}
