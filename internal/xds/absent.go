package xds

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// absentVersion is the version of what stands for nothing.
const absentVersion = "absent"

// absent returns what tells a client that there is nothing of a name, so that it fails
// at once instead of waiting. Nil: by the protocol's word "removed".
//
//   - A cluster asked for on demand: one without endpoints, 503 at once. After "removed"
//     Envoy asks no more, and each later connection waits 5 s (on-demand-xds, rule 1).
//     A view that wants to pass through answers with such a cluster itself.
//   - Endpoints: none. Without an answer the cluster warms, and with it all others (rule 3).
//   - A virtual host: a resource without body, 404 at once; after "removed" the request
//     waits without an end (rule 5).
func absent(p *Proxy, typeURL, name string) *Resource {
	var body proto.Message
	switch {
	case typeURL == ClusterType && p.OnDemand:
		body = &cluster.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
			LoadAssignment:       &endpoint.ClusterLoadAssignment{ClusterName: name},
			ConnectTimeout:       durationpb.New(1e9),
		}
	case typeURL == EndpointType:
		body = &endpoint.ClusterLoadAssignment{ClusterName: name}
	case typeURL == VirtualHostType:
		return &Resource{Name: name, Version: absentVersion}
	default:
		return nil
	}
	packed, err := anypb.New(body)
	if err != nil { // a name that is not UTF-8; protobuf would not have let it in
		return nil
	}
	return &Resource{Name: name, Version: absentVersion, Body: packed}
}
