package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// A BackendPolicySpec is a BackendPolicy of Outrider, or an XBackendTrafficPolicy of the Gateway
// API, which sets a retry budget only.
type BackendPolicySpec struct {
	Kind            Kind // [KindBackendPolicy] or [KindTrafficPolicy]
	Name, Namespace string
	Created         time.Time
	Targets         []PolicyTarget // Services of its namespace
	Settings        BackendPolicy
}

// Key returns the key, of which the kind is that of the object.
func (s *BackendPolicySpec) Key() Key { return Key{s.Kind, s.Namespace, s.Name} }

// A PolicyTarget is a Service of the policy's namespace, or one of its ports.
type PolicyTarget struct{ Name, Section string } // Section: a port's name; empty: all ports

// A BackendPolicy is how the proxies of clients connect to a service's port. What is not set is
// as without a policy.
type BackendPolicy struct {
	Limits   Limits
	Outliers Outliers
	Faults   Faults
	Budget   *RetryBudget
}

// Limits of what one proxy sends to a service's port. Zero and nil: no limit, and the default timeouts.
type Limits struct {
	Connections           uint32
	PendingRequests       uint32
	Requests              uint32
	Retries               *uint32 // at the same time
	RequestsPerConnection uint32
	ConnectTimeout        time.Duration // of one try
	IdleTimeout           time.Duration // of a connection without a request
}

// Outliers says when an endpoint is taken out of use, and for how long. A count of 0: never.
type Outliers struct {
	Errors5xx       *uint32 // in a row, as the next two
	GatewayErrors   *uint32 // of the status 502, 503 and 504
	LocalFailures   *uint32 // of connections
	Interval        time.Duration
	EjectionTime    time.Duration
	EjectionPercent *uint32
}

// Faults are delays and errors that the proxies of clients inject into requests.
type Faults struct {
	Delay        time.Duration // 0: none
	DelayPercent float64
	HTTPStatus   uint32 // of the response, or GRPCStatus; both 0: no abort
	GRPCStatus   uint32
	AbortPercent float64
}

// A RetryBudget limits retries to a share of the requests of an interval.
type RetryBudget struct {
	Percent  uint32
	Interval time.Duration
	Least    uint32 // retries at the same time that are always allowed
}

// A PortPolicy is the policy of one port of a service.
type PortPolicy struct {
	Number           uint16
	From, BudgetFrom string // the names of the BackendPolicy and of the XBackendTrafficPolicy
	BackendPolicy
}

// Policy returns that of a port; the zero policy if it has none.
func (s *Service) Policy(number uint16) BackendPolicy {
	if p := s.portPolicy(number); p != nil {
		return p.BackendPolicy
	}
	return BackendPolicy{}
}

func (s *Service) portPolicy(number uint16) *PortPolicy {
	i, ok := slices.BinarySearchFunc(s.Policies, number, func(p PortPolicy, n uint16) int { return cmp.Compare(p.Number, n) })
	if !ok {
		return nil
	}
	return &s.Policies[i]
}

// Uses reports whether a version of a policy, valid or the last valid one, counts for a port of s.
func (s *Service) Uses(p *BackendPolicySpec) bool {
	return slices.ContainsFunc(s.Policies, func(of PortPolicy) bool {
		return p.Kind == KindBackendPolicy && of.From == p.Name || p.Kind == KindTrafficPolicy && of.BudgetFrom == p.Name
	})
}

// SameFaults reports whether the requests to a and b have the same faults.
func SameFaults(a, b *Service) bool {
	faults := func(s *Service) (out []PortPolicy) {
		if s == nil {
			return nil
		}
		for _, p := range s.Policies {
			if p.Faults != (Faults{}) {
				out = append(out, PortPolicy{Number: p.Number, BackendPolicy: BackendPolicy{Faults: p.Faults}})
			}
		}
		return out
	}
	return slices.Equal(faults(a), faults(b))
}

// indexBackendPolicy marks the targets of a policy.
func (b *Builder) indexBackendPolicy(p *BackendPolicySpec, present bool) {
	for _, t := range p.Targets {
		n := name{p.Namespace, t.Name}
		b.policiesTo.set(n, p, present)
		b.service(n).policies = nil
	}
}

// A policySet has the policies of a service's ports, and what is ignored of them.
type policySet struct {
	ports     []PortPolicy
	conflicts []Conflict
}

// backendPolicies computes those of a service; spec is nil if there is none of the name.
func (b *Builder) backendPolicies(n name, spec *ServiceSpec) *policySet {
	out := &policySet{}
	specs := slices.SortedFunc(maps.Keys(b.policiesTo[n]), olderPolicy)
	var judged *Service // as far as policies depend on it
	if spec != nil {
		out.ports = portPolicies(n.name, spec, specs)
		judged = &Service{Namespace: n.namespace, Name: n.name, Ports: spec.ports(), Headless: spec.Headless, External: spec.External, Policies: out.ports}
	}
	for _, p := range specs {
		for i, t := range p.Targets {
			if t.Name != n.name {
				continue
			}
			if len(out.conflicts) >= maxPolicyConflicts {
				out.conflicts = append(out.conflicts, Conflict{Severity: contract.WarningPrefix, Object: Key{KindService, n.namespace, n.name},
					Message: "more of its policies have no effect, or not all of it"})
				return out
			}
			out.conflicts = append(out.conflicts, judged.Judge(p, t).conflicts(p, fmt.Sprintf("spec.targetRefs[%d]", i))...)
		}
	}
	return out
}

// maxPolicyConflicts bounds what is reported of one service, which may have any number of policies.
const maxPolicyConflicts = 20

// olderPolicy is the Gateway API's order of conflicting policies (GEP-713): the older one counts,
// then the first by name.
func olderPolicy(x, y *BackendPolicySpec) int {
	return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
}

// portPolicies chooses those of each port, of each kind by itself: the one that names the port,
// else the one that names the service. Of two that name the same the older one counts, as a whole.
func portPolicies(service string, spec *ServiceSpec, specs []*BackendPolicySpec) []PortPolicy {
	type place struct {
		kind    Kind
		section string
	}
	first := map[place]*BackendPolicySpec{}
	for _, p := range specs {
		for _, t := range p.Targets {
			if at := (place{p.Kind, t.Section}); t.Name == service && first[at] == nil {
				first[at] = p
			}
		}
	}
	var out []PortPolicy
	for _, port := range spec.ports() {
		if port.Protocol == UDP || len(out) > 0 && out[len(out)-1].Number == port.Number {
			continue
		}
		choose := func(kind Kind) *BackendPolicySpec {
			return cmp.Or(first[place{kind, port.Name}], first[place{kind, ""}])
		}
		next := PortPolicy{Number: port.Number}
		if p := choose(KindBackendPolicy); p != nil {
			next.From, next.BackendPolicy = p.Name, p.Settings
		}
		if p := choose(KindTrafficPolicy); p != nil {
			next.BudgetFrom, next.Budget = p.Name, p.Settings.Budget
		}
		if next.From != "" || next.BudgetFrom != "" {
			out = append(out, next)
		}
	}
	return out
}

// A PolicyVerdict is what becomes of a policy at one of its targets.
type PolicyVerdict struct {
	NotFound   string   // why there is no such target; else empty
	Conflicted string   // which policies count in its place
	Without    []string // what of it has no effect, and why
	Note       string   // what holds in another way than the object says
}

func (v PolicyVerdict) conflicts(p *BackendPolicySpec, field string) (out []Conflict) {
	if refused := v.NotFound + v.Conflicted; refused != "" {
		return []Conflict{{Object: p.Key(), Field: field, Message: refused}}
	}
	for _, w := range v.Without {
		out = append(out, Conflict{Severity: contract.WarningPrefix, Object: p.Key(), Message: w})
	}
	return out
}

// Judge says what becomes of a policy at a target; s is the Service of that name, or nil.
func (s *Service) Judge(p *BackendPolicySpec, t PolicyTarget) (v PolicyVerdict) {
	if s == nil {
		v.NotFound = fmt.Sprintf("there is no Service %s/%s", p.Namespace, t.Name)
		return v
	}
	var ports, udp, bytes []Port // that it is for; of these those that are not captured, and have no requests
	var others []string          // policies that count in its place
	withBudget := false
	for _, port := range s.Ports {
		if t.Section != "" && port.Name != t.Section {
			continue
		}
		ports = append(ports, port)
		of := s.portPolicy(port.Number)
		switch {
		case port.Protocol == UDP:
			udp = append(udp, port)
		case of == nil: // the mesh is older than the policy
		case p.Kind == KindBackendPolicy && of.From != p.Name:
			others = append(others, fmt.Sprintf("on the port %d %s %s/%s counts", port.Number, p.Kind, s.Namespace, of.From))
		case p.Kind == KindTrafficPolicy && of.BudgetFrom != p.Name:
			others = append(others, fmt.Sprintf("on the port %d %s %s/%s counts", port.Number, p.Kind, s.Namespace, of.BudgetFrom))
		default:
			withBudget = withBudget || of.BudgetFrom != ""
			if !port.Protocol.IsHTTP() && port.Protocol != Unknown {
				bytes = append(bytes, port)
			}
		}
	}
	switch {
	case len(ports) == 0:
		v.NotFound = fmt.Sprintf("Service %s/%s has no port with the name %q", p.Namespace, t.Name, t.Section)
		return v
	case len(others) > 0 && len(others)+len(udp) == len(ports):
		v.Conflicted = "is ignored: " + ShortList(others, "; ")
		return v
	}
	v.Without = others
	if len(udp) == len(ports) {
		v.without("has no effect on %s: UDP is not captured", udp)
	}
	for _, field := range p.Settings.ofRequests() {
		v.without(field+" has no effect on %s, not declared for HTTP or gRPC", bytes)
	}
	if p.Kind == KindBackendPolicy && p.Settings.Limits.Retries != nil && withBudget {
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

func (v *PolicyVerdict) without(format string, ports []Port) {
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
	v.Without = append(v.Without, fmt.Sprintf(format, prefix+ShortList(numbers, ", ")))
}

// ShortList joins the first items of a list that may be long.
func ShortList(items []string, separator string) string {
	const most = 5
	if len(items) > most {
		return strings.Join(items[:most], separator) + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, separator)
}

// ofRequests returns the fields that are set and that concern requests alone.
func (p *BackendPolicy) ofRequests() (out []string) {
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
	add(p.Faults != Faults{}, "faults")
	add(p.Budget != nil, "retryConstraint")
	return out
}
