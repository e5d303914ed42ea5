// Package xds serves Envoy's configuration by the aggregated discovery service: delta,
// with clusters, virtual hosts and endpoints on demand, and state-of-the-world for
// clients that subscribe to everything.
//
// It knows the protocol and who asks. What there is to tell comes from a [Source].
//
// Both protocols are dialects of one engine: a request becomes an interest, an interest
// or a new [View] becomes a batch of what to tell, and the dialect writes the batch as
// messages. The rules that on-demand discovery needs stand in batch.go and absent.go:
//
//   - every name asked for is answered, also when nothing is known of it;
//   - an on-demand cluster is never told as removed: Envoy would not ask again, and each
//     later connection would wait for its timeout;
//   - endpoints follow their clusters unasked: Envoy does not ask for endpoints that
//     another cluster has, and warms for 15 s;
//   - what is needed comes before what needs it.
package xds
