// Package readiness knows whether a pod's proxy can serve, and if not, why not.
//
// A [Board] holds named conditions from a closed list, each with its reason. It is a
// value with subscribers: [Board.Wait] is released by the change itself, and nothing
// polls. What sets the conditions stands beside it: [Proxy] looks at one Envoy after
// another, [Keep] repeats a check until it succeeds, an [Inquiry] checks while a client
// wants to know, and [Capture], [DNS] and [Listening] are such questions. Whoever knows a condition from elsewhere (the
// certificate, the app) sets it directly.
//
// The level [Outbound] is "the app may call": it never depends on the app. [Full] adds the
// health of each application of the pod. Where nothing tells it, because there is neither a
// probe nor a gate, the level is not reached, and the reason says so: who asks for it wants
// to know, and not to hope.
package readiness
