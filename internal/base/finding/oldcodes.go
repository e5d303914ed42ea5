package finding

import (
	"maps"
	"slices"
)

// renamed maps the old name of a code to its present one. Old names are accepted for one release, because scripts
// contain them.
var renamed = map[string]Code{
	"bad-annotation":      "invalid-annotation",
	"bad-name":            "invalid-name",
	"bad-timeout":         "invalid-timeout",
	"cannot-be-kept":      "unsatisfiable-edge",
	"definitions":         "crds",
	"hold-holds-nobody":   "hold-on-last-container",
	"kind-without-effect": "unsupported-kind",
	"liveness-asks-proxy": "liveness-depends-on-proxy",
	"mechanism-unfit":     "unsuitable-mechanism",
	"mesh-port":           "proxy-port-conflict",
	"no-order":            "proxy-not-awaited",
	"not-enforced":        "policy-not-enforced",
	"own-crash":           "app-crash",
	"probe-through-proxy": "probe-blocked-by-proxy",
	"races-helper":        "sibling-not-awaited",
	"rights":              "permissions",
	"roots":               "root-certificates",
	"self-waiting-probe":  "probe-cycle",
	"sleep":               "fixed-sleep",
	"star-leaves-out":     "wildcard-incomplete",
	"unknown-name":        "unknown-container",
	"unknown-word":        "unsupported-value",
}

// dropped maps a code that no command reports any more to the tool that now gives the same advice. Such a code
// is also accepted for one release.
var dropped = map[string]string{
	"liveness-no-slack":         "it is about a probe, and no order; kube-score's pod-probes and Kubernetes' page about probes have such advice",
	"probe-timeout":             "it is about a probe, and no order; Kubernetes' page about probes explains timeoutSeconds",
	"service-without-readiness": "kube-linter has it as no-readiness-probe, kube-score as pod-probes",
}

// Present returns the present code for a name that a user wrote. If the name is an old one, it also returns a
// note about that. If no command reports the code any more, it returns "" and a note that names the tool which
// gives this advice now. A name that was never a code is returned as it is.
func Present(name string) (code Code, note string) {
	if code = renamed[name]; code != "" {
		return code, name + " is now called " + string(code) + "; the next release accepts the new name only"
	}
	if instead := dropped[name]; instead != "" {
		return "", name + " is no longer checked: " + instead
	}
	return Code(name), ""
}

// OldCodes returns the renamed and the dropped codes, in no order.
func OldCodes() []string {
	return append(slices.Collect(maps.Keys(renamed)), slices.Collect(maps.Keys(dropped))...)
}
