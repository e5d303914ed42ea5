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
func (b *builder) endpoints(name string, t target) *endpoint.ClusterLoadAssignment {
	zones := map[string][]*endpoint.LbEndpoint{}
	for _, e := range serving(t.service.Endpoints, t.port.Name, t.effectiveFamily()) {
		id := ""
		if mutual(e.Workload, e.Port) {
			id = identity(b.config.TrustDomain, e.Workload)
		}
		zone := e.Zone
		if zone == "" && e.Workload != nil {
			zone = e.Workload.Zone
		}
		zones[zone] = append(zones[zone], lbEndpoint(e.Addr.String(), e.Port, id))
	}
	out := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		out.Endpoints = append(out.Endpoints, &endpoint.LocalityLbEndpoints{
			Locality: &core.Locality{Zone: zone}, // a gRPC client requires a locality with a weight
			// The number of endpoints, so that all of them have the same weight.
			LoadBalancingWeight: uint32Value(uint32(len(zones[zone]))),
			LbEndpoints:         zones[zone],
		})
	}
	return out
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
