package kinds

// gone are codes that no rule has any more, each with who gives that advice. They are accepted for
// one release, since they are in people's scripts.
var gone = map[string]string{
	"liveness-no-slack":         "it is about a probe, and no order; kube-score's pod-probes and Kubernetes' page about probes have such advice",
	"probe-timeout":             "it is about a probe, and no order; Kubernetes' page about probes explains timeoutSeconds",
	"service-without-readiness": "kube-linter has it as no-readiness-probe, kube-score as pod-probes",
}

// Gone returns what to say where someone names a code that lint had: that it is no longer checked, and who
// checks it; empty if it is no such code.
func Gone(code string) string {
	if instead := gone[code]; instead != "" {
		return code + " is no longer checked: " + instead
	}
	return ""
}
