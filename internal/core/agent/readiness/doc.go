// Package readiness finds out whether a pod's proxy can serve, and if not, why not.
//
// A [Board] holds named conditions from a closed list, each with its reason. It notifies its
// subscribers: a change ends a [Board.Wait] at once, without polling. A [Proxy] sets the
// conditions of one Envoy after another, [Keep] repeats a check until it succeeds, and an
// [Inquiry] checks while a client waits. [Capture] and [DNS] are checks. Other packages set the
// other conditions (for example the certificate) directly.
//
// The level [Outbound] means that the app may make calls; it never depends on the app. [Full]
// adds the health of each application of the pod. An application with neither a probe nor a gate
// is not known to be healthy: then Full is not reached, and the reason names the application.
package readiness
