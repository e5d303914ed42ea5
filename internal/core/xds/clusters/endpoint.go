package clusters

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/mtls"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/observe"
)

// Endpoints returns the load assignment for endpoints of a service's port, by priority and zone.
//
// If chosen is one of the nearest endpoints, it has a priority of its own, above all others, and so has the one that
// is used while the chosen one is ejected.
func (b Builder) Endpoints(name string, all ByPriority, chosen netip.AddrPort) *endpoint.ClusterLoadAssignment {
	groups := map[group][]*endpoint.LbEndpoint{}
	for priority, endpoints := range choosing(all, chosen) {
		for _, e := range endpoints {
			id := ""
			if mtls.Mutual(e.Workload, e.Port) {
				id = mtls.Identity(b.TrustDomain, e.Workload)
			}
			g := group{uint32(priority), e.EffectiveZone()}
			groups[g] = append(groups[g], b.describe(lbEndpoint(e.Addr.String(), e.Port, id), e.Workload))
		}
	}
	out := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, g := range slices.SortedFunc(maps.Keys(groups), group.compare) {
		out.Endpoints = append(out.Endpoints, &endpoint.LocalityLbEndpoints{
			Locality: &core.Locality{Zone: g.zone}, // a gRPC client requires a locality with a weight
			Priority: g.priority,
			// The weight is the number of endpoints, so that each endpoint has the same share.
			LoadBalancingWeight: wrapperspb.UInt32(uint32(len(groups[g]))),
			LbEndpoints:         groups[g],
		})
	}
	return out
}

// ByPriority are the endpoints for clients at a place: those near the client and the others, or all. The first list
// is sorted by address.
type ByPriority [][]mesh.Endpoint

// EndpointsFor returns the endpoints of a service's port in a family for clients at a place. They are the ready
// endpoints; if there are none, those that are terminating but still serve, as in kube-proxy; or else those that
// were ready before the kubelet restarted.
//
// Endpoints near the client have a higher priority. Unlike kube-proxy, Envoy uses the others if the near ones are
// missing or ejected. As in kube-proxy, none is near while all are terminating. A service with
// internalTrafficPolicy: Local has only the endpoints on the client's node; if there are none, calls fail.
func EndpointsFor(t names.Target, at mesh.Place) ByPriority {
	all := serving(t.Service.Reachable(at), t.Port.Name, t.EffectiveFamily())
	if terminating := len(all) > 0 && !all[0].Ready && all[0].Serving; terminating {
		if at.Node != "" {
			all = some(all, at.Node)
			slices.SortFunc(all, byAddress)
		}
		return ByPriority{all}
	}
	near := t.Service.Near(all, at)
	if near == nil {
		return ByPriority{all}
	}
	var close, far []mesh.Endpoint
	for _, e := range all {
		if near(e) {
			close = append(close, e)
		} else {
			far = append(far, e)
		}
	}
	if at.Node != "" {
		far = some(far, at.Node)
	}
	return ByPriority{close, far}
}

// maxAside limits the endpoints beside a chosen one. There may be an assignment for each endpoint that a client can
// choose, so that all of them together would grow with the square of their number.
const maxAside = 10

// choosing puts the chosen endpoint, and the one after it, before all others. Those after it come in a ring, so that
// the endpoints aside of each chosen one are others.
func choosing(priorities ByPriority, chosen netip.AddrPort) ByPriority {
	near := priorities[0]
	i := slices.IndexFunc(near, func(e mesh.Endpoint) bool { return netip.AddrPortFrom(e.Addr, e.Port) == chosen })
	if i < 0 {
		return priorities
	}
	ring := slices.Concat(near[i:], near[:i])
	out := ByPriority{ring[:1], ring[1:min(2, len(ring))], ring[min(2, len(ring)):min(2+maxAside, len(ring))]}
	for _, far := range priorities[1:] {
		out = append(out, far[:min(len(far), maxAside)])
	}
	// Priorities must have no gap.
	return slices.DeleteFunc(out, func(endpoints []mesh.Endpoint) bool { return len(endpoints) == 0 })
}

// describe adds to an endpoint the workload for which its requests are counted.
func (b Builder) describe(e *endpoint.LbEndpoint, w *mesh.Workload) *endpoint.LbEndpoint {
	if b.Metrics && w != nil {
		observe.DescribeWorkload(e, w)
	}
	return e
}

// maxFar limits the endpoints in a node's load assignment that are not near the node. Without the limit, for a
// service with an endpoint on each of 5,000 nodes, all assignments together would contain 25 million.
const maxFar = 100

// some returns maxFar of the endpoints that are not near a node. The choice depends on the node, so that calls from
// many nodes are spread when their near endpoints are gone.
func some(far []mesh.Endpoint, node string) []mesh.Endpoint {
	if len(far) <= maxFar {
		return far
	}
	h := fnv.New32a()
	h.Write([]byte(node))
	first := int(h.Sum32() % uint32(len(far)))
	return append(far[first:min(first+maxFar, len(far))], far[:max(0, first+maxFar-len(far))]...)
}

// A group is the key by which a load assignment groups endpoints.
type group struct {
	priority uint32 // 0 is used first
	zone     string
}

func (g group) compare(h group) int {
	return cmp.Or(cmp.Compare(g.priority, h.priority), cmp.Compare(g.zone, h.zone))
}

// serving returns the endpoints of a port that accept connections, sorted by address: those of the family f or,
// if kube-proxy would have no such endpoint, those of the other family.
func serving(all []mesh.Endpoint, portName string, f names.Family) []mesh.Endpoint {
	var ready, terminating, kept, others, othersTerminating []mesh.Endpoint
	for _, e := range all {
		own := names.FamilyOf(e.Addr) == f
		switch {
		case e.PortName != portName:
		case own && e.Ready:
			ready = append(ready, e)
		case own && e.Serving:
			terminating = append(terminating, e)
		case own && e.Kept:
			kept = append(kept, e)
		case e.Ready:
			others = append(others, e)
		case e.Serving:
			othersTerminating = append(othersTerminating, e)
		}
	}
	for _, next := range [][]mesh.Endpoint{terminating, others, othersTerminating, kept} {
		if ready == nil {
			ready = next
		}
	}
	slices.SortStableFunc(ready, byAddress)
	return slices.CompactFunc(ready, func(a, b mesh.Endpoint) bool { return a.Addr == b.Addr && a.Port == b.Port })
}

func byAddress(a, b mesh.Endpoint) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// lbEndpoint returns an endpoint, which is called by mutual TLS if id is not empty.
func lbEndpoint(host string, port uint16, id string) *endpoint.LbEndpoint {
	out := &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
		Endpoint: &endpoint.Endpoint{Address: message.SocketAddress(host, port)},
	}}
	if id != "" {
		out.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.transport_socket_match": identityOf(id),
		}}
	}
	return out
}

// singleEndpoint returns the load assignment of a static cluster.
func singleEndpoint(name, host string, port uint16, id string) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{lbEndpoint(host, port, id)},
	}}}
}
