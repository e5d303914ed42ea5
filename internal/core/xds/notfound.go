package xds

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// notFoundVersion is the version of the resources that notFound returns.
const notFoundVersion = "absent"

// notFound returns the resource that stands for a name without one, so that the client
// fails at once instead of waiting. Nil: the name goes to the removed resources.
//
//   - An on-demand cluster: one without endpoints, 503 at once. After a removal Envoy does
//     not subscribe again, and each later connection waits 5 s. For an address that passes
//     through, a snapshot has a cluster of its own.
//   - Endpoints: none. Without a response the cluster warms, and all others wait for it.
//   - A virtual host: a resource without a body, 404 at once; after a removal the request
//     waits without an end.
func notFound(p *Proxy, typeURL, name string) *Resource {
	var body proto.Message
	switch {
	case typeURL == ClusterType && !p.GRPC:
		body = &cluster.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
			LoadAssignment:       &endpoint.ClusterLoadAssignment{ClusterName: name},
			ConnectTimeout:       durationpb.New(1e9),
		}
	case typeURL == EndpointType:
		body = &endpoint.ClusterLoadAssignment{ClusterName: name}
	case typeURL == VirtualHostType:
		return &Resource{Name: name, Version: notFoundVersion}
	default:
		return nil
	}
	packed, _ := anypb.New(body) // fails if the name is not UTF-8, which protobuf does not let in
	return &Resource{Name: name, Version: notFoundVersion, Body: packed}
}
