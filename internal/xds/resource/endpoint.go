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

// endpoints are those behind a service's port for who calls by a family, by zone: the
// ready ones or, if there are none, those that are leaving but still answer, as
// kube-proxy has it.
func (b *builder) endpoints(name string, t target) *endpoint.ClusterLoadAssignment {
	zones := map[string][]*endpoint.LbEndpoint{}
	for _, e := range serving(t.service.Endpoints, t.port.Name, t.called()) {
		id := ""
		if mutual(e.Workload, e.Port) {
			id = identity(b.config.TrustDomain, e.Workload)
		}
		zone := e.Zone
		if zone == "" && e.Workload != nil {
			zone = e.Workload.Zone
		}
		zones[zone] = append(zones[zone], one(e.Addr.String(), e.Port, id))
	}
	out := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		out.Endpoints = append(out.Endpoints, &endpoint.LocalityLbEndpoints{
			Locality: &core.Locality{Zone: zone}, // a gRPC client wants one, and a weight
			// By their number, so that each endpoint counts the same.
			LoadBalancingWeight: number(uint32(len(zones[zone]))),
			LbEndpoints:         zones[zone],
		})
	}
	return out
}

// serving are the endpoints of a port that take connections, by address, each once: those
// of a family or, where kube-proxy would have none, those of the other.
func serving(all []mesh.Endpoint, portName string, f family) []mesh.Endpoint {
	var ready, leaving, others, othersLeaving []mesh.Endpoint
	for _, e := range all {
		own := familyOf(e.Addr) == f
		switch {
		case e.PortName != portName:
		case own && e.Ready:
			ready = append(ready, e)
		case own && e.Serving:
			leaving = append(leaving, e)
		case e.Ready:
			others = append(others, e)
		case e.Serving:
			othersLeaving = append(othersLeaving, e)
		}
	}
	for _, next := range [][]mesh.Endpoint{leaving, others, othersLeaving} {
		if ready == nil {
			ready = next
		}
	}
	slices.SortStableFunc(ready, func(a, b mesh.Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return slices.CompactFunc(ready, func(a, b mesh.Endpoint) bool { return a.Addr == b.Addr && a.Port == b.Port })
}

// one is an endpoint that is called by mutual TLS, if it has an identity.
func one(host string, port uint16, id string) *endpoint.LbEndpoint {
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

// single is one endpoint for a cluster's own configuration.
func single(name, host string, port uint16, id string) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{one(host, port, id)},
	}}}
}
