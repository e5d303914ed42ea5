package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A BackendPolicySpec is a BackendPolicy of Outrider or an XBackendTrafficPolicy of the Gateway API. The
// latter can only set a retry budget.
type BackendPolicySpec struct {
	Kind            Kind // [KindBackendPolicy] or [KindTrafficPolicy]
	Name, Namespace string
	Created         time.Time
	Targets         []PolicyTarget // Services in the policy's namespace
	Settings        BackendPolicy
}

// Key returns the policy's key, with the kind of its object.
func (s *BackendPolicySpec) Key() Key { return Key{s.Kind, s.Namespace, s.Name} }

// A PolicyTarget is a Service in the policy's namespace, or one of its ports.
type PolicyTarget struct{ Name, Section string } // Section: a port's name; empty: all ports

// A BackendPolicy configures how clients' proxies connect to a service's port. An unset field has the same
// effect as no policy.
type BackendPolicy struct {
	Limits   Limits
	Outliers Outliers
	Faults   Faults
	Budget   *RetryBudget
}

// Limits apply to what each proxy sends to a service's port. Zero or nil means no limit; for a timeout it
// means the default.
type Limits struct {
	Connections           uint32
	PendingRequests       uint32
	Requests              uint32
	Retries               *uint32 // number of concurrent retries
	RequestsPerConnection uint32
	ConnectTimeout        time.Duration // limit of one attempt to connect
	IdleTimeout           time.Duration // limit of the time without a request or bytes
}

// Outliers determines when an endpoint is ejected, and for which time. A count of 0 means never.
type Outliers struct {
	Errors5xx       *uint32 // consecutive errors that eject an endpoint, also in the next two fields
	GatewayErrors   *uint32 // number of responses with the status 502, 503 or 504
	LocalFailures   *uint32 // number of failed connections
	Interval        time.Duration
	EjectionTime    time.Duration
	EjectionPercent *uint32
}

// Faults are delays and errors that clients' proxies inject into requests.
type Faults struct {
	Delay        time.Duration // 0: none
	DelayPercent float64
	HTTPStatus   uint32 // status of the response, or GRPCStatus; both 0: no abort
	GRPCStatus   uint32
	AbortPercent float64
}

// A RetryBudget limits retries to a percentage of the requests within an interval.
type RetryBudget struct {
	Percent  uint32
	Interval time.Duration
	Least    uint32 // number of concurrent retries that are always allowed
}

// A PortPolicy contains the settings for one port of a service, from at most one policy of each kind.
type PortPolicy struct {
	Number           uint16
	From, BudgetFrom string // names of the BackendPolicy and of the XBackendTrafficPolicy; empty: none
	BackendPolicy
}

// Policy returns the policy for a port. If there is none, it returns the zero policy.
func (s *Service) Policy(number uint16) BackendPolicy {
	if p := s.PortPolicy(number); p != nil {
		return p.BackendPolicy
	}
	return BackendPolicy{}
}

// PortPolicy returns the policy for a port, with the names of the objects from which it comes; nil if there
// is none.
func (s *Service) PortPolicy(number uint16) *PortPolicy {
	i, ok := slices.BinarySearchFunc(s.Policies, number, func(p PortPolicy, n uint16) int { return cmp.Compare(p.Number, n) })
	if !ok {
		return nil
	}
	return &s.Policies[i]
}

// Uses reports whether a port of s uses a policy, in the policy's current version or its last valid version.
func (s *Service) Uses(p *BackendPolicySpec) bool {
	return slices.ContainsFunc(s.Policies, func(of PortPolicy) bool {
		return p.Kind == KindBackendPolicy && of.From == p.Name || p.Kind == KindTrafficPolicy && of.BudgetFrom == p.Name
	})
}

// SameFaults reports whether the same faults are injected into requests to two services.
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

// ShortList joins the first five items of a list, and adds the number of the others.
func ShortList(items []string, separator string) string {
	const most = 5
	if len(items) > most {
		return strings.Join(items[:most], separator) + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, separator)
}
