// Package xds serves Envoy's configuration over the aggregated discovery service: delta xDS with
// on-demand clusters, virtual hosts and endpoints, and state-of-the-world xDS for gRPC's own clients,
// which do not support the delta protocol.
//
// It implements the protocol and authenticates clients. The resources come from a [Source].
//
// Both protocols share one engine: a request changes a subscription, the change or a new [Snapshot]
// results in a response, and the protocol writes the response as messages. The rules that on-demand
// discovery needs are in response.go and notfound.go:
//
//   - every subscribed name is answered, even if it has no resource;
//   - an on-demand cluster is never removed, because Envoy would not subscribe again, and each
//     later connection would wait for its timeout;
//   - endpoints are sent with their clusters, because Envoy does not subscribe to endpoints that
//     another cluster has, and would wait 15 s;
//   - a dependency is sent before the resource that refers to it.
//
// The limits for one request, one stream and one client are in limits.go.
package xds
