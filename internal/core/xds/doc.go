// Package xds serves Envoy's configuration by the aggregated discovery service: delta xDS
// with on-demand clusters, virtual hosts and endpoints, and state-of-the-world xDS for gRPC's
// own clients, which speak no other.
//
// It implements the protocol and authenticates clients. The resources come from a [Source].
//
// Both protocols share one engine: a request changes a subscription, the change or a new
// [Snapshot] becomes a response, and the protocol writes the response as messages. The
// rules that on-demand discovery needs are in response.go and notfound.go:
//
//   - every subscribed name is answered, also when no resource has it;
//   - an on-demand cluster is never removed: Envoy would not subscribe again, and each
//     later connection would wait for its timeout;
//   - endpoints are sent with their clusters: Envoy does not subscribe to endpoints that
//     another cluster has, and warms for 15 s;
//   - a dependency is sent before the resource that refers to it.
//
// What one request, one stream and one client may cost is in limits.go.
package xds
