// Package webhook answers the API server's question about each new pod: AdmissionReview
// v1 over HTTPS, at /inject and /inject/cluster/X/net/Y as Istio's webhook has it.
//
// What a pod gets is [inject.Pod]'s decision. This package reads the question, answers
// it, and keeps to four rules. A pod that cannot be injected is refused with what to
// change. A pod of a namespace that is never injected, the control plane's own first of
// all, is let through before it is even read. A body that is no AdmissionReview, too
// long or too slow costs a connection and nothing more. And whoever is asked twice
// changes nothing the second time.
//
// Where to read:
//
//	webhook.go        a request on its way: limits, deadlines, panics
//	review.go         AdmissionReview as far as it is read and written
//	decide.go         what is answered
//	path.go           variables in the path
//	memo.go           replicas of one workload are injected once; blot.go: what they differ in
//	headroom.go       how often the collector runs
//	warnings.go       what fits in the API server's answer
//	counters.go       numbers for metrics
//	tls.go            the port
//	configuration.go  the MutatingWebhookConfiguration; bundle.go: its certificates
package webhook
