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

// policyOf returns the policy for a service's port. It applies to everything that is sent to the
// service's endpoints, even by a route of another service.
func (t target) policyOf() mesh.BackendPolicy { return t.service.Policy(t.port.Number) }

// limit applies the limits and the retry budget to a cluster that has none.
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

// limitRequests applies the limits for connections with requests.
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

// defaultPanic is Envoy's default: if fewer than this percentage of the endpoints are in use, all are
// used.
const defaultPanic = 50

// detectOutliers sets the outlier detection of a cluster.
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
		// As without a policy, the time is multiplied by the number of ejections, at most by six.
		d.BaseEjectionTime, d.MaxEjectionTime = duration(p.EjectionTime), duration(6*p.EjectionTime)
	}
	if p.EjectionPercent == nil {
		return
	}
	d.MaxEjectionPercent = uint32Value(*p.EjectionPercent)
	if left := 100 - *p.EjectionPercent; left < defaultPanic {
		// An endpoint that the policy allows to be ejected stays ejected: Envoy must not use it for
		// lack of others.
		c.CommonLbConfig = &cluster.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: float64(left)}}
	}
}

// faultFilter is the name of the filter, and of its configuration in routes.
const faultFilter = "envoy.filters.http.fault"

// injectsFaults returns a filter that has no faults itself, because routes configure them. Its
// statistics do not depend on a header, which callers could fill with any number of names.
func injectsFaults() *hcm.HttpFilter {
	return httpFilter(faultFilter, &fault.HTTPFault{DisableDownstreamClusterStats: true})
}

// faultsOf returns the configuration of the faults for requests to a target; nil if it has none.
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

// share converts a percentage of the requests.
func share(percent float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(percent * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// routed reports whether requests from clients in a namespace to a service's port go through the
// internal listener, because there are routes for them, or faults.
func (t target) routed(namespace string) bool {
	return len(t.service.RoutesFor(namespace, t.port.Number)) > 0 || faultsOf(t) != nil
}

// faultsKey returns the faults as a part of a policy's key.
func faultsKey(t target) string {
	if faultsOf(t) == nil {
		return ""
	}
	return fmt.Sprint(t.policyOf().Faults)
}
