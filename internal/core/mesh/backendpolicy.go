package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
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
	if p := s.PortPolicy(number); p != nil {
		return p.BackendPolicy
	}
	return BackendPolicy{}
}

// PortPolicy returns that of a port, with its names, or nil.
func (s *Service) PortPolicy(number uint16) *PortPolicy {
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

// ShortList joins the first items of a list that may be long.
func ShortList(items []string, separator string) string {
	const most = 5
	if len(items) > most {
		return strings.Join(items[:most], separator) + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, separator)
}
