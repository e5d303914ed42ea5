package build

import (
	"fmt"
	"strconv"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// A Verdict describes the effect of a policy at one of its targets.
type Verdict struct {
	NotFound   string   // reason why the target does not exist; empty: it exists
	Conflicted string   // list of the policies that are used instead; empty: none
	Without    []string // the fields that have no effect, each with the reason
	Note       string   // an effect that differs from the one that the object describes
}

// Judge returns the verdict on the policy p at its target t. S is the target's Service; nil if it does not
// exist.
func Judge(s *mesh.Service, p *mesh.BackendPolicySpec, t mesh.PolicyTarget) (v Verdict) {
	if s == nil {
		v.NotFound = fmt.Sprintf("there is no Service %s/%s", p.Namespace, t.Name)
		return v
	}
	var ports, uncaptured, bytes []mesh.Port // targeted ports; among them, those that are not captured and those without requests
	var others []string                      // policies that are used instead
	withBudget := false
	for _, port := range s.Ports {
		if t.Section != "" && port.Name != t.Section {
			continue
		}
		ports = append(ports, port)
		of := s.PortPolicy(port.Number)
		switch {
		case !port.Protocol.Captured():
			uncaptured = append(uncaptured, port)
		case of == nil: // the mesh does not contain the policy yet
		case p.Kind == mesh.KindBackendPolicy && of.From != p.Name:
			others = append(others, fmt.Sprintf("on the port %d %s %s/%s counts", port.Number, p.Kind, s.Namespace, of.From))
		case p.Kind == mesh.KindTrafficPolicy && of.BudgetFrom != p.Name:
			others = append(others, fmt.Sprintf("on the port %d %s %s/%s counts", port.Number, p.Kind, s.Namespace, of.BudgetFrom))
		default:
			withBudget = withBudget || of.BudgetFrom != ""
			if !port.Protocol.IsHTTP() && port.Protocol != mesh.Unknown {
				bytes = append(bytes, port)
			}
		}
	}
	switch {
	case len(ports) == 0:
		v.NotFound = fmt.Sprintf("Service %s/%s has no port with the name %q", p.Namespace, t.Name, t.Section)
		return v
	case len(others) > 0 && len(others)+len(uncaptured) == len(ports):
		v.Conflicted = "is ignored: " + mesh.ShortList(others, "; ")
		return v
	}
	v.Without = others
	if len(uncaptured) == len(ports) {
		v.without("has no effect on %s: UDP and SCTP are not captured", uncaptured)
	}
	for _, field := range ofRequests(&p.Settings) {
		v.without(field+" has no effect on %s, not declared for HTTP or gRPC", bytes)
	}
	if p.Kind == mesh.KindBackendPolicy && p.Settings.Limits.Retries != nil && withBudget {
		v.Without = append(v.Without, "spec.connections.maxRetries has no effect: the port has a retry budget of an XBackendTrafficPolicy, which counts")
	}
	if s.Headless {
		v.Without = append(v.Without, fmt.Sprintf("has no effect on connections to the addresses of pods, as clients of the headless Service %s make them: it holds for what a route or a gRPC client sends to the Service", s.Name))
	}
	if s.External != "" {
		v.Without = append(v.Without, fmt.Sprintf("has no effect on connections to %s itself, and its outlierDetection has none at all: it holds for what a route sends to the Service %s", s.External, s.Name))
	}
	if p.Settings.Budget != nil {
		v.Note = "proxies limit how many retries are in progress: minRetryRate.count at the same time are always allowed, whatever its interval; each proxy counts its own requests"
	}
	return v
}

func (v *Verdict) without(format string, ports []mesh.Port) {
	if len(ports) == 0 {
		return
	}
	numbers := make([]string, len(ports))
	for i, p := range ports {
		numbers[i] = strconv.Itoa(int(p.Number))
	}
	prefix := "the port "
	if len(ports) > 1 {
		prefix = "the ports "
	}
	v.Without = append(v.Without, fmt.Sprintf(format, prefix+mesh.ShortList(numbers, ", ")))
}

// ofRequests returns those fields that are set and affect only requests.
func ofRequests(p *mesh.BackendPolicy) (out []string) {
	add := func(set bool, field string) {
		if set {
			out = append(out, "spec."+field)
		}
	}
	add(p.Limits.Requests > 0, "connections.maxRequests")
	add(p.Limits.Retries != nil, "connections.maxRetries")
	add(p.Limits.RequestsPerConnection > 0, "connections.maxRequestsPerConnection")
	add(p.Limits.IdleTimeout > 0, "connections.idleTimeout")
	add(p.Outliers.Errors5xx != nil, "outlierDetection.consecutive5xxErrors")
	add(p.Outliers.GatewayErrors != nil, "outlierDetection.consecutiveGatewayErrors")
	add(p.Faults != mesh.Faults{}, "faults")
	add(p.Budget != nil, "retryConstraint")
	return out
}

func (v Verdict) conflicts(p *mesh.BackendPolicySpec, field string) (out []Conflict) {
	if refused := v.NotFound + v.Conflicted; refused != "" {
		return []Conflict{{Object: p.Key(), Field: field, Message: refused}}
	}
	for _, w := range v.Without {
		out = append(out, Conflict{Severity: contract.WarningPrefix, Object: p.Key(), Message: w})
	}
	return out
}
