package readiness

import "fmt"

// A Level defines which part of a pod must be ready.
type Level string

// The readiness levels.
const (
	Outbound Level = "outbound" // the proxy serves: the app may start and make calls
	Full     Level = "full"     // Outbound, and every application of the pod is known to be healthy
)

// ParseLevel parses a level; the empty string is Outbound.
func ParseLevel(s string) (Level, error) {
	switch Level(s) {
	case "", Outbound:
		return Outbound, nil
	case Full:
		return Full, nil
	}
	return "", fmt.Errorf("level=%q: one of outbound, full", s)
}

// A Condition is a fact that must hold before the proxy is ready.
type Condition uint8

// The conditions, with causes before their effects: the first one that does not hold is the
// cause to look at.
const (
	Certificate   Condition = iota // the proxy has a certificate
	Identity                       // proxy and control plane accept one another
	ControlPlane                   // the proxy is connected to the control plane
	Envoy                          // Envoy runs, and its state is LIVE
	Configuration                  // clusters and listeners were accepted
	Listeners                      // Envoy listens on the capture ports
	CaptureRules                   // captured connections reach the proxy
	Names                          // the DNS proxy answers
	App                            // each application is known to be healthy
	conditions                     // number of conditions
)

// rule holds the constants of a condition.
type rule struct {
	name  string // name of the condition
	code  string // Reason.Code while the condition does not hold; part of the API, so it must not change
	level Level  // the lowest level that needs it
	// assumed: the condition holds until the opposite is seen. Other conditions do not hold until they are seen
	// to hold.
	assumed bool
	begin   string // the reason before the first Set
	hint    string
}

var rules = [conditions]rule{
	Certificate: {
		name: "certificate", code: "certificate-missing", level: Outbound, begin: "no certificate yet",
		hint: "the agent's log has the certificate authority's answer; is the service account token mounted?",
	},
	Identity: {
		name: "identity", code: "identity-refused", level: Outbound, assumed: true,
		hint: "compare the trust domain, the root certificate and the token's audience of this pod with the control plane's",
	},
	ControlPlane: {
		name: "control-plane", code: "no-control-plane", level: Outbound, begin: "not connected to the control plane yet",
		hint: "is the control plane running, and its address reachable from this pod (network policy, DNS)?",
	},
	Envoy: {
		name: "envoy", code: "envoy-not-live", level: Outbound, begin: "Envoy was not started yet",
		hint: "the agent's log has Envoy's last lines",
	},
	Configuration: {
		name: "configuration", code: "configuration-not-accepted", level: Outbound, begin: "no configuration yet",
		hint: "outrider proxy-status shows what the control plane sent and what was rejected",
	},
	Listeners: {
		name: "listeners", code: "listener-not-bound", level: Outbound, begin: "Envoy does not listen yet",
		hint: "does something else in the pod listen on the port, or run as the proxy's user?",
	},
	CaptureRules: {
		name: "capture", code: "capture-not-in-place", level: Outbound, begin: "capture was not tried yet",
		hint: "outrider-agent capture verify, in a container with NET_ADMIN, shows whether the rules are there; did outrider-init run, or has another program rules before them?",
	},
	Names: {
		name: "dns-proxy", code: "dns-proxy-silent", level: Outbound, begin: "the DNS proxy was not queried yet",
		hint: "is port 15053 taken by another process of the pod?",
	},
	App: {
		name: "app", code: "app-not-healthy", level: Full, begin: "the app's health is not known yet",
		hint: "an application is known by its readiness (else startup) probe over HTTP, TCP or gRPC, or by its gate; its log has more",
	},
}

// Conditions lists all conditions in order.
func Conditions() []Condition {
	out := make([]Condition, conditions)
	for i := range out {
		out[i] = Condition(i)
	}
	return out
}

// String returns the condition's name.
func (c Condition) String() string {
	return rules[c].name
}

// counts reports whether level needs c.
func (c Condition) counts(l Level) bool { return l == Full || rules[c].level == Outbound }
