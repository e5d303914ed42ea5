// Package readiness knows whether a pod's proxy can serve, and if not, why not.
//
// A [Board] holds named conditions from a closed list, each with its reason. It is a
// value with subscribers: [Board.Wait] is released by the change itself, and nothing
// polls. A [Proxy] sets the conditions of one Envoy after another, [Keep] repeats a check
// until it succeeds, an [Inquiry] checks while a client waits; [Capture] and [DNS] are such
// checks. Other packages set the rest (the certificate) directly.
//
// The level [Outbound] is "the app may call": it never depends on the app. [Full] adds the
// health of each application of the pod. An application with neither a probe nor a gate is not
// known to be healthy: the level is not reached, and the reason names it.
package readiness
