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

// cluster returns a cluster, with its endpoints if these are a separate resource.
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

// addressCluster returns the cluster for an address, by the first rule that matches:
//
//  1. The virtual address of a service that the proxy can see: the service or, if the service has
//     routes for this client or faults, the internal listener.
//  2. The address of a workload: that workload, by mutual TLS if it supports that.
//     In both cases, if the port declares HTTP, the cluster for bytes leads to the internal listener
//     for silent connections.
//  3. Any other address: the address itself. A port that no service has is refused there, as
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
		return xds.Bundle{Resource: build()} // not cached, because there may be 65,535 such ports
	}
	return xds.Bundle{Resource: v.cache.of(w).getFor(sh, directKey{a, sh, retried}, build)}
}

// unknownCluster returns the cluster for an address about which the proxy may know nothing. It is not
// cached, because an application that scans addresses would fill the control plane's memory.
func (v *snapshot) unknownCluster(a address, free bool) xds.Bundle {
	c, out := directCluster(a, mesh.HTTP, "", features{}, v.inServiceRange(a.to.Addr())), xds.Bundle{}
	s := v.mesh.ByAddress(a.to.Addr())
	if free && (s == nil || s.Port(a.to.Port()) == nil) && v.inServiceNetwork(a.to.Addr()) {
		// The control plane may see a new service, or its port, a moment after the client.
		out.Hold = v.firstUseTimeout / 2
		c.ConnectTimeout = duration(unknownConnectTimeout)
	}
	out.Resource = serialize(a.String(), c)
	return out
}

// unknownConnectTimeout is for an address at which a service may appear. Until then a connection there
// is lost, and its next attempt finds the service. It can be short, because no pod is behind the
// address that could have queued the connection.
const unknownConnectTimeout = 500 * time.Millisecond

// inServiceNetwork reports whether an address is in the network of services: the smallest network that
// contains all blocks of their addresses, within a /12 or, for IPv6, a /108, the largest networks that
// Kubernetes uses for services.
func (v *snapshot) inServiceNetwork(a netip.Addr) bool {
	within, _ := a.Prefix(serviceNetworkBits(a))
	n, ok := v.serviceNetworks().within[within]
	return ok && n.smallest.Contains(a)
}

// inServiceRange reports whether failed connections to an address are retried.
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

// serviceNetworks are the networks of the services' virtual addresses.
type serviceNetworks struct {
	within map[netip.Prefix]serviceNetwork // by the largest possible network that contains each
	ranges []netip.Prefix                  // as used in listeners
}

type serviceNetwork struct {
	smallest netip.Prefix // contains all blocks
	first    netip.Prefix // the /16 or, for IPv6, the /112 of the lowest block
}

// listServiceNetworks computes the networks from the blocks of virtual addresses.
func (v *snapshot) listServiceNetworks() serviceNetworks {
	out := serviceNetworks{within: map[netip.Prefix]serviceNetwork{}}
	for block := range v.away.networks.virtual { // any order: the smallest network and the lowest block do not depend on it
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
	for within, n := range out.within { // any order: the ranges are sorted below
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

// maxServiceRanges limits the filter chains of a listener. A cluster has one or two ranges for each
// family; Hosts may have virtual addresses elsewhere. Connections to further ranges are not retried.
const maxServiceRanges = 16

// inside returns either a range or the first of the mesh's networks that overlaps it, whichever is
// smaller; nothing if none overlaps.
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

// internalCluster returns a cluster that leads to the internal listener. The virtual host is sent with
// it, which saves a round trip and moves the wait to the cluster: Envoy has a timeout for that wait,
// but none for virtual hosts.
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

// tcpCluster returns the cluster of the same address for connections without early bytes, because pools
// connect before they have a request. It is sent along, so that a service in use stays reachable in
// both ways while the control plane is away.
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

// serviceAt returns the service with a virtual address, if p can see it.
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

// mayIdentify reports whether a client may learn a workload's identity: it can see one of the
// workload's services, or there is none.
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

// withEndpoints returns a cluster followed by its endpoints, because Envoy does not subscribe to
// endpoints that it has for another cluster.
func (v *snapshot) withEndpoints(p *xds.Proxy, c *xds.Resource, t target) xds.Bundle {
	b := xds.Bundle{Resource: c, Service: true}
	if t.service.External == "" {
		b.After = []xds.Dependency{{Type: xds.EndpointType, Resource: v.endpointsOf(p, t)}}
	}
	return b
}

// endpointsOf returns the endpoints of t. If the service prefers near ones, they depend on where p is.
func (v *snapshot) endpointsOf(p *xds.Proxy, t target) *xds.Resource {
	at := v.place(p, t.service)
	return v.cache.of(t.service).get(endpointsKey{t.port.Number, t.family, at}, func() *xds.Resource {
		return serialize(t.name(), v.endpoints(t.name(), t, at))
	})
}

// place returns the location of p, as far as the endpoints of a service depend on it. Node and zone come
// from objects in the mesh, not from claims, so their number is limited.
func (v *snapshot) place(p *xds.Proxy, s *mesh.Service) mesh.Place {
	if !s.Topological {
		return mesh.Place{}
	}
	return s.Relevant(v.mesh.PlaceOf(workload(v.mesh, p)))
}

// namedEndpoints returns endpoints by name; an empty list if p cannot see the service.
func (v *snapshot) namedEndpoints(p *xds.Proxy, name string) *xds.Resource {
	r, ok := parseServiceName(name)
	if !ok {
		return nil
	}
	t, ok := v.target(r, p.Namespace)
	switch {
	case !ok:
		return serialize(name, &endpoint.ClusterLoadAssignment{ClusterName: name})
	case t.name() != name: // the name was made while the other family was the primary one
		return serialize(name, v.endpoints(name, t, v.place(p, t.service)))
	}
	return v.endpointsOf(p, t)
}

// maxPrewarm limits the clusters for declared dependencies, to those of some 250 services.
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

// clusterNames returns the clusters that connections to a service's port use.
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
		if !p.Protocol.IsHTTP() { // for HTTP it is sent with the cluster for requests
			out = append(out, address{tcpPrefix, to}.String())
		}
	}
	return out
}
