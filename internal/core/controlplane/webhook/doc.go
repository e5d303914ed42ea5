// Package webhook answers AdmissionReviews (v1, over HTTPS) of new pods, at /inject and
// /inject/cluster/X/net/Y as Istio's webhook does.
//
// [inject.Pod] decides how a pod changes; this package reads the review and writes the answer. A pod that
// cannot be injected is refused, with advice on what to change. A pod in the control plane's namespace is
// allowed before it is decoded. If a body is not an AdmissionReview, is too long or arrives too slowly, the
// connection is closed. A second review of an injected pod changes nothing.
//
// Where to read:
//
//	webhook.go        the port; a request: limits, deadlines, panics
//	decide.go         the answer
//	path.go           variables in the path
//	warnings.go       what the API server shows of warnings
//	counters.go       numbers for metrics
//	configuration.go  the MutatingWebhookConfiguration; bundle.go: its certificates
package webhook
