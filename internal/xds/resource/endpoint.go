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

// endpoints are those behind a service's port, by zone: the ready ones or, if there are
// none, those that are leaving but still answer, as kube-proxy has it.
func (b *builder) endpoints(s *mesh.Service, p *mesh.Port) *endpoint.ClusterLoadAssignment {
	zones := map[string][]*endpoint.LbEndpoint{}
	for _, e := range serving(s.Endpoints, p.Name) {
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
	out := &endpoint.ClusterLoadAssignment{ClusterName: serviceName(s, p.Number)}
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

// serving are the endpoints of a port that take connections, by address, each once.
func serving(all []mesh.Endpoint, portName string) []mesh.Endpoint {
	var ready, leaving []mesh.Endpoint
	for _, e := range all {
		switch {
		case e.PortName != portName:
		case e.Ready:
			ready = append(ready, e)
		case e.Serving:
			leaving = append(leaving, e)
		}
	}
	if ready == nil {
		ready = leaving
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
