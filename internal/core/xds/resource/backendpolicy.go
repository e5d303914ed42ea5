package resource

import (
	"fmt"
	"math"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	faults "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	fault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
)

// policyOf is the policy of a service's port. It holds for what goes to the service's endpoints,
// also when the route of another service leads there.
func (t target) policyOf() mesh.BackendPolicy { return t.service.Policy(t.port.Number) }

// limit applies the limits and the retry budget to a cluster without any.
func limit(c *cluster.Cluster, p mesh.BackendPolicy) {
	l := p.Limits
	thresholds := c.CircuitBreakers.Thresholds[0]
	set := func(to *uint32, n uint32) {
		if n > 0 {
			*to = n
		}
	}
	set(&thresholds.MaxConnections.Value, l.Connections)
	set(&thresholds.MaxPendingRequests.Value, l.PendingRequests)
	set(&thresholds.MaxRequests.Value, l.Requests)
	if l.Retries != nil {
		thresholds.MaxRetries.Value = *l.Retries
	}
	if b := p.Budget; b != nil {
		thresholds.RetryBudget = &cluster.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent: &typev3.Percent{Value: float64(b.Percent)}, BudgetInterval: duration(b.Interval), MinRetryConcurrency: uint32Value(b.Least),
		}
	}
	if l.ConnectTimeout > 0 {
		c.ConnectTimeout = duration(l.ConnectTimeout)
	}
}

// limitRequests applies the limits of connections with requests.
func limitRequests(o *upstream.HttpProtocolOptions, l mesh.Limits) {
	if l.RequestsPerConnection == 0 && l.IdleTimeout == 0 {
		return
	}
	o.CommonHttpProtocolOptions = &core.HttpProtocolOptions{}
	if l.RequestsPerConnection > 0 {
		o.CommonHttpProtocolOptions.MaxRequestsPerConnection = uint32Value(l.RequestsPerConnection)
	}
	if l.IdleTimeout > 0 {
		o.CommonHttpProtocolOptions.IdleTimeout = duration(l.IdleTimeout)
	}
}

// defaultPanic is Envoy's default: with fewer endpoints in use than this percentage, all are.
const defaultPanic = 50

// detectOutliers changes the outlier detection of a cluster.
func detectOutliers(c *cluster.Cluster, p mesh.Outliers) {
	d := c.OutlierDetection
	const never, always = 0, 100
	set := func(count, enforcing **wrapperspb.UInt32Value, n *uint32) {
		switch {
		case n == nil:
		case *n == 0:
			*enforcing = uint32Value(never)
		default:
			*count, *enforcing = uint32Value(*n), uint32Value(always)
		}
	}
	set(&d.Consecutive_5Xx, &d.EnforcingConsecutive_5Xx, p.Errors5xx)
	set(&d.ConsecutiveGatewayFailure, &d.EnforcingConsecutiveGatewayFailure, p.GatewayErrors)
	set(&d.ConsecutiveLocalOriginFailure, &d.EnforcingConsecutiveLocalOriginFailure, p.LocalFailures)
	if p.Interval > 0 {
		d.Interval = duration(p.Interval)
	}
	if p.EjectionTime > 0 {
		// As without a policy: the time of an ejection is multiplied by their number, at most by six.
		d.BaseEjectionTime, d.MaxEjectionTime = duration(p.EjectionTime), duration(6*p.EjectionTime)
	}
	if p.EjectionPercent == nil {
		return
	}
	d.MaxEjectionPercent = uint32Value(*p.EjectionPercent)
	if left := 100 - *p.EjectionPercent; left < defaultPanic {
		// What the policy lets be ejected stays so: Envoy must not send there for want of others.
		c.CommonLbConfig = &cluster.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: float64(left)}}
	}
}

// faultFilter is the name of the filter, and of what a route configures of it.
const faultFilter = "envoy.filters.http.fault"

// injectsFaults is a filter without faults of its own: routes have them. The statistics are not by
// a header, which any caller could fill with names.
func injectsFaults() *hcm.HttpFilter {
	return httpFilter(faultFilter, &fault.HTTPFault{DisableDownstreamClusterStats: true})
}

// faultsOf configures the faults of requests to a target; nil if it has none.
func faultsOf(t target) map[string]*anypb.Any {
	f := t.policyOf().Faults
	if f == (mesh.Faults{}) || !mayBeHTTP(t.port.Protocol) {
		return nil
	}
	out := &fault.HTTPFault{DisableDownstreamClusterStats: true}
	if f.Delay > 0 {
		out.Delay = &faults.FaultDelay{
			FaultDelaySecifier: &faults.FaultDelay_FixedDelay{FixedDelay: duration(f.Delay)}, Percentage: share(f.DelayPercent),
		}
	}
	switch {
	case f.HTTPStatus > 0:
		out.Abort = &fault.FaultAbort{ErrorType: &fault.FaultAbort_HttpStatus{HttpStatus: f.HTTPStatus}, Percentage: share(f.AbortPercent)}
	case f.GRPCStatus > 0:
		out.Abort = &fault.FaultAbort{ErrorType: &fault.FaultAbort_GrpcStatus{GrpcStatus: f.GRPCStatus}, Percentage: share(f.AbortPercent)}
	}
	return map[string]*anypb.Any{faultFilter: typed(out)}
}

// share is a percentage of the requests.
func share(percent float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(percent * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// routed reports whether the requests of a namespace's clients to a service's port go through the
// internal listener: it has routes for them, or faults.
func (t target) routed(namespace string) bool {
	return len(t.service.RoutesFor(namespace, t.port.Number)) > 0 || faultsOf(t) != nil
}

// faultsKey is the part of a policy's key that its faults are.
func faultsKey(t target) string {
	if faultsOf(t) == nil {
		return ""
	}
	return fmt.Sprint(t.policyOf().Faults)
}
