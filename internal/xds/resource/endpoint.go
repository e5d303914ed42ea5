package resource

import (
	"cmp"
	"maps"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/mesh"
)

// endpoints returns those of a service's port and a family, by zone: the ready ones or, if
// there are none, the terminating ones that still serve, as kube-proxy does, and then those that
// were ready before the kubelet restarted.
//
// Those that are near a client have a higher priority. Unlike kube-proxy, Envoy goes to the others
// when these are not there or are ejected.
func (b *builder) endpoints(name string, t target, at mesh.Place) *endpoint.ClusterLoadAssignment {
	all := serving(t.service.Endpoints, t.port.Name, t.effectiveFamily())
	near := t.service.Near(all, at)
	groups := map[group][]*endpoint.LbEndpoint{}
	for _, e := range all {
		id := ""
		if mutual(e.Workload, e.Port) {
			id = identity(b.config.TrustDomain, e.Workload)
		}
		g := group{zone: e.EffectiveZone()}
		if near != nil && !near(e) {
			g.priority = 1
		}
		groups[g] = append(groups[g], lbEndpoint(e.Addr.String(), e.Port, id))
	}
	out := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, g := range slices.SortedFunc(maps.Keys(groups), group.compare) {
		out.Endpoints = append(out.Endpoints, &endpoint.LocalityLbEndpoints{
			Locality: &core.Locality{Zone: g.zone}, // a gRPC client requires a locality with a weight
			Priority: g.priority,
			// The number of endpoints, so that all of them have the same weight.
			LoadBalancingWeight: uint32Value(uint32(len(groups[g]))),
			LbEndpoints:         groups[g],
		})
	}
	return out
}

// A group of endpoints in a load assignment.
type group struct {
	priority uint32 // 0 is used first
	zone     string
}

func (g group) compare(h group) int {
	return cmp.Or(cmp.Compare(g.priority, h.priority), cmp.Compare(g.zone, h.zone))
}

// serving returns the endpoints of a port that accept connections, sorted by address: those
// of a family or, where kube-proxy would have none, those of the other.
func serving(all []mesh.Endpoint, portName string, f family) []mesh.Endpoint {
	var ready, terminating, kept, others, othersTerminating []mesh.Endpoint
	for _, e := range all {
		own := familyOf(e.Addr) == f
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
	slices.SortStableFunc(ready, func(a, b mesh.Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return slices.CompactFunc(ready, func(a, b mesh.Endpoint) bool { return a.Addr == b.Addr && a.Port == b.Port })
}

// lbEndpoint returns an endpoint, which is called by mutual TLS if it has an identity.
func lbEndpoint(host string, port uint16, id string) *endpoint.LbEndpoint {
	out := &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
		Endpoint: &endpoint.Endpoint{Address: socketAddress(host, port)},
	}}
	if id != "" {
		out.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.transport_socket_match": identityOf(id),
		}}
	}
	return out
}

// singleEndpoint is the load assignment of a static cluster.
func singleEndpoint(name, host string, port uint16, id string) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{lbEndpoint(host, port, id)},
	}}}
}
