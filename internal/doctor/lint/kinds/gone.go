package kinds

// gone maps codes that no rule uses any more to the tool that gives this advice now. The codes are accepted for one
// more release, because people's scripts contain them.
var gone = map[string]string{
	"liveness-no-slack":         "it is about a probe, and no order; kube-score's pod-probes and Kubernetes' page about probes have such advice",
	"probe-timeout":             "it is about a probe, and no order; Kubernetes' page about probes explains timeoutSeconds",
	"service-without-readiness": "kube-linter has it as no-readiness-probe, kube-score as pod-probes",
}

// Gone returns the message for a code that lint no longer uses: that it is not checked any more, and which tool
// checks it. It is empty for every other code.
func Gone(code string) string {
	if instead := gone[code]; instead != "" {
		return code + " is no longer checked: " + instead
	}
	return ""
}
