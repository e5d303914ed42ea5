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

// notFound returns a resource for a name that has none, so that the client fails at once instead of
// waiting. If it returns nil, the name is sent as removed.
//
//   - An on-demand cluster becomes one without endpoints, which answers 503 at once. After a removal Envoy would
//     not subscribe again, and each later connection would wait 5 s. An address whose connections pass through is
//     never missing: the snapshot itself has a cluster for it.
//   - Endpoints become an empty list. Without a response their cluster would keep warming, and all other clusters
//     would wait for it.
//   - A virtual host becomes a resource without a body, which answers 404 at once. After a removal the
//     request would wait for ever.
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
	packed, _ := anypb.New(body) // the call fails only for a name that is not UTF-8, which protobuf rejects on receipt
	return &Resource{Name: name, Version: notFoundVersion, Body: packed}
}
