package objects

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"outrider.dev/internal/core/mesh"
)

// A BackendPolicyObject is a custom resource of Outrider. It contains limits, outlier detection and faults
// for connections and requests to a Service. The CustomResourceDefinition in the chart enforces the same
// rules.
type BackendPolicyObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   BackendPolicyObjectSpec `json:"spec"`
	Status map[string]any          `json:"status,omitempty"`
}

// A BackendPolicyObjectSpec is the spec of a BackendPolicyObject.
type BackendPolicyObjectSpec struct {
	TargetRefs       []BackendPolicyTarget `json:"targetRefs"`
	Connections      *BackendConnections   `json:"connections,omitempty"`
	OutlierDetection *BackendOutliers      `json:"outlierDetection,omitempty"`
	Faults           *BackendFaults        `json:"faults,omitempty"`
}

// A BackendPolicyTarget is a Service in the policy's namespace, or one of the Service's named ports.
type BackendPolicyTarget struct {
	Group       *string `json:"group,omitempty"` // default: ""
	Kind        *string `json:"kind,omitempty"`  // default: Service
	Name        string  `json:"name"`
	SectionName *string `json:"sectionName,omitempty"`
}

// BackendConnections contains the limits for each proxy that connects to the Service.
type BackendConnections struct {
	Max                      *int64              `json:"max,omitempty"`
	MaxPendingRequests       *int64              `json:"maxPendingRequests,omitempty"`
	MaxRequests              *int64              `json:"maxRequests,omitempty"`
	MaxRetries               *int64              `json:"maxRetries,omitempty"`
	MaxRequestsPerConnection *int64              `json:"maxRequestsPerConnection,omitempty"`
	ConnectTimeout           *gatewayv1.Duration `json:"connectTimeout,omitempty"`
	IdleTimeout              *gatewayv1.Duration `json:"idleTimeout,omitempty"`
}

// BackendOutliers determines when an endpoint is ejected.
type BackendOutliers struct {
	Consecutive5xxErrors           *int64              `json:"consecutive5xxErrors,omitempty"`
	ConsecutiveGatewayErrors       *int64              `json:"consecutiveGatewayErrors,omitempty"`
	ConsecutiveLocalOriginFailures *int64              `json:"consecutiveLocalOriginFailures,omitempty"`
	Interval                       *gatewayv1.Duration `json:"interval,omitempty"`
	BaseEjectionTime               *gatewayv1.Duration `json:"baseEjectionTime,omitempty"`
	MaxEjectionPercent             *int64              `json:"maxEjectionPercent,omitempty"`
}

// BackendFaults contains the faults that are injected into requests.
type BackendFaults struct {
	Delay *BackendDelay `json:"delay,omitempty"`
	Abort *BackendAbort `json:"abort,omitempty"`
}

// A BackendDelay is a pause before a request is forwarded.
type BackendDelay struct {
	Duration *gatewayv1.Duration `json:"duration"`
	Percent  *float64            `json:"percent,omitempty"` // default: 100
}

// A BackendAbort is a response in place of the Service's.
type BackendAbort struct {
	HTTPStatus *int64   `json:"httpStatus,omitempty"`
	GRPCStatus *int64   `json:"grpcStatus,omitempty"`
	Percent    *float64 `json:"percent,omitempty"` // default: 100
}

const (
	maxTargets = 16        // as in the Gateway API's policies
	maxLimit   = 1<<31 - 1 // maximum of a number of connections or requests
	maxTime    = time.Hour
	maxIdle    = 24 * time.Hour
)

type policyReader struct{ check }

// BackendPolicy returns the part for p. If there is an error, the part contains everything else in the
// object.
func BackendPolicy(p *BackendPolicyObject) (*mesh.BackendPolicySpec, error) {
	var c policyReader
	out := &mesh.BackendPolicySpec{Kind: mesh.KindBackendPolicy, Created: p.CreationTimestamp.Time}
	out.Namespace, out.Name = c.meta(&p.ObjectMeta)
	for i, t := range p.Spec.TargetRefs {
		field := at("spec.targetRefs", i)
		if kind := ptr.Deref(t.Kind, "Service"); ptr.Deref(t.Group, "") != "" || kind != "Service" {
			c.invalid(field+".kind", "%q is not supported: must be Service, of the group \"\"", kind)
		}
		c.target(out, field, mesh.PolicyTarget{Name: t.Name, Section: ptr.Deref(t.SectionName, "")})
		if t.SectionName != nil {
			c.label(field+".sectionName", *t.SectionName)
		}
	}
	if n := len(p.Spec.TargetRefs); n == 0 || n > maxTargets {
		c.invalid("spec.targetRefs", "has %d items: must have 1 to %d", n, maxTargets)
	}
	if p.Spec.Connections == nil && p.Spec.OutlierDetection == nil && p.Spec.Faults == nil {
		c.invalid("spec", "sets nothing: must have connections, outlierDetection or faults")
	}
	out.Settings.Limits = c.connections("spec.connections", p.Spec.Connections)
	out.Settings.Outliers = c.outliers("spec.outlierDetection", p.Spec.OutlierDetection)
	out.Settings.Faults = c.faults("spec.faults", p.Spec.Faults)
	return out, c.result()
}

// target adds a target. It reports an error if the policy has the target already.
func (c *policyReader) target(out *mesh.BackendPolicySpec, field string, t mesh.PolicyTarget) {
	c.label(field+".name", t.Name)
	if slices.Contains(out.Targets, t) {
		c.invalid(field, "is in spec.targetRefs twice")
	}
	out.Targets = append(out.Targets, t)
}

func (c *policyReader) connections(field string, s *BackendConnections) (out mesh.Limits) {
	switch {
	case s == nil:
		return out
	case *s == BackendConnections{}:
		c.invalid(field, "sets nothing: must have a field")
	}
	out.Connections = c.count(field+".max", s.Max)
	out.PendingRequests = c.count(field+".maxPendingRequests", s.MaxPendingRequests)
	out.Requests = c.count(field+".maxRequests", s.MaxRequests)
	out.Retries = c.optional(field+".maxRetries", s.MaxRetries, maxLimit)
	out.RequestsPerConnection = c.count(field+".maxRequestsPerConnection", s.MaxRequestsPerConnection)
	out.ConnectTimeout = c.within(field+".connectTimeout", s.ConnectTimeout, time.Millisecond, maxTime)
	out.IdleTimeout = c.within(field+".idleTimeout", s.IdleTimeout, time.Millisecond, maxIdle)
	return out
}

func (c *policyReader) outliers(field string, s *BackendOutliers) (out mesh.Outliers) {
	switch {
	case s == nil:
		return out
	case *s == BackendOutliers{}:
		c.invalid(field, "sets nothing: must have a field")
	}
	out.Errors5xx = c.optional(field+".consecutive5xxErrors", s.Consecutive5xxErrors, maxLimit)
	out.GatewayErrors = c.optional(field+".consecutiveGatewayErrors", s.ConsecutiveGatewayErrors, maxLimit)
	out.LocalFailures = c.optional(field+".consecutiveLocalOriginFailures", s.ConsecutiveLocalOriginFailures, maxLimit)
	out.Interval = c.within(field+".interval", s.Interval, time.Second, maxTime)
	out.EjectionTime = c.within(field+".baseEjectionTime", s.BaseEjectionTime, time.Second, maxTime)
	out.EjectionPercent = c.optional(field+".maxEjectionPercent", s.MaxEjectionPercent, 100)
	return out
}

func (c *policyReader) faults(field string, s *BackendFaults) (out mesh.Faults) {
	switch {
	case s == nil:
		return out
	case s.Delay == nil && s.Abort == nil:
		c.invalid(field, "sets nothing: must have delay or abort")
	}
	if d := s.Delay; d != nil {
		if d.Duration == nil {
			c.invalid(field+".delay.duration", "missing")
		}
		out.Delay = c.within(field+".delay.duration", d.Duration, time.Millisecond, maxTime)
		out.DelayPercent = c.percent(field+".delay.percent", d.Percent)
	}
	if a := s.Abort; a != nil {
		if (a.HTTPStatus == nil) == (a.GRPCStatus == nil) {
			c.invalid(field+".abort", "must have either httpStatus or grpcStatus")
		}
		out.HTTPStatus = c.status(field+".abort.httpStatus", a.HTTPStatus, 200, 599)
		out.GRPCStatus = c.status(field+".abort.grpcStatus", a.GRPCStatus, 1, 16)
		out.AbortPercent = c.percent(field+".abort.percent", a.Percent)
	}
	return out
}

// number converts a number within bounds. It returns nil if the number is unset or invalid.
func (c *policyReader) number(field string, n *int64, wrong string, least, most int64) *uint32 {
	if n == nil {
		return nil
	}
	if *n < least || *n > most {
		c.invalid(field, "%d is %s: must be %d to %d", *n, wrong, least, most)
		return nil
	}
	return ptr.To(uint32(*n))
}

// count returns a number of at least 1, or 0 if it is unset.
func (c *policyReader) count(field string, n *int64) uint32 {
	return ptr.Deref(c.number(field, n, "out of range", 1, maxLimit), 0)
}

// optional returns a number of at least 0, or nil if it is unset.
func (c *policyReader) optional(field string, n *int64, most int64) *uint32 {
	return c.number(field, n, "out of range", 0, most)
}

func (c *policyReader) status(field string, n *int64, least, most int64) uint32 {
	return ptr.Deref(c.number(field, n, "not a status", least, most), 0)
}

// leastPercent is the smallest percentage that Envoy can represent.
const leastPercent = 0.0001

func (c *policyReader) percent(field string, p *float64) float64 {
	if p == nil {
		return 100
	}
	if !(*p >= leastPercent && *p <= 100) {
		c.invalid(field, "%v is not a share of the requests: must be 0.0001 to 100", *p)
		return 0
	}
	return *p
}

// within returns a duration within bounds, or 0 if it is unset or invalid.
func (c *policyReader) within(field string, d *gatewayv1.Duration, least, most time.Duration) time.Duration {
	before := len(c.errors)
	out := c.duration(field, d)
	if d != nil && len(c.errors) == before && (out < least || out > most) {
		c.invalid(field, "%q is out of range: must be %s to %s", *d, least, strings.TrimSuffix(most.String(), "0m0s"))
		return 0
	}
	return out
}

// Defaults of a retryConstraint in the Gateway API's CustomResourceDefinition.
const (
	defaultBudgetPercent  = 20
	defaultBudgetInterval = 10 * time.Second
	defaultLeastRetries   = 10
)

// XBackendTrafficPolicy returns the part for p, a policy of the Gateway API (GEP-3388); nil if none of its
// targets is a Service.
func XBackendTrafficPolicy(p *gatewayx.XBackendTrafficPolicy) (*mesh.BackendPolicySpec, error) {
	var c policyReader
	out := &mesh.BackendPolicySpec{Kind: mesh.KindTrafficPolicy, Created: p.CreationTimestamp.Time}
	out.Namespace, out.Name = c.meta(&p.ObjectMeta)
	for i, t := range p.Spec.TargetRefs {
		if t.Group == "" && t.Kind == "Service" {
			c.target(out, at("spec.targetRefs", i), mesh.PolicyTarget{Name: string(t.Name)})
		}
	}
	if len(out.Targets) == 0 { // the policy belongs to another controller
		return nil, c.result()
	}
	if n := len(p.Spec.TargetRefs); n > maxTargets {
		c.invalid("spec.targetRefs", "has %d items: must have 1 to %d", n, maxTargets)
	}
	if p.Spec.SessionPersistence != nil {
		c.invalid("spec.sessionPersistence", "is not supported: remove it")
	}
	if r := p.Spec.RetryConstraint; r != nil {
		out.Settings.Budget = c.retryBudget("spec.retryConstraint", r)
	}
	return out, c.result()
}

func (c *policyReader) retryBudget(field string, r *gatewayx.RetryConstraint) *mesh.RetryBudget {
	out := &mesh.RetryBudget{Percent: defaultBudgetPercent, Interval: defaultBudgetInterval, Least: defaultLeastRetries}
	if b := r.Budget; b != nil {
		if p := ptr.Deref(b.Percent, defaultBudgetPercent); p < 0 || p > 100 {
			c.invalid(field+".budget.percent", "%d is not a percentage: must be 0 to 100", p)
		} else {
			out.Percent = uint32(p)
		}
		if b.Interval != nil {
			out.Interval = c.within(field+".budget.interval", b.Interval, time.Second, maxTime)
		}
	}
	if m := r.MinRetryRate; m != nil {
		if n := ptr.Deref(m.Count, defaultLeastRetries); n < 1 || n > 1_000_000 {
			c.invalid(field+".minRetryRate.count", "%d is out of range: must be 1 to 1000000", n)
		} else {
			out.Least = uint32(n)
		}
		c.within(field+".minRetryRate.interval", m.Interval, time.Millisecond, maxTime)
	}
	return out
}
