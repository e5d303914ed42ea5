package clusters

import (
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
)

// limit applies the limits and the retry budget of a policy to a cluster that has no limits yet.
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
			BudgetPercent: &typev3.Percent{Value: float64(b.Percent)}, BudgetInterval: durationpb.New(b.Interval), MinRetryConcurrency: wrapperspb.UInt32(b.Least),
		}
	}
	if l.ConnectTimeout > 0 {
		c.ConnectTimeout = durationpb.New(l.ConnectTimeout)
	}
}

// limitRequests applies the limits for connections with requests.
func limitRequests(o *upstream.HttpProtocolOptions, l mesh.Limits) {
	if l.RequestsPerConnection == 0 && l.IdleTimeout == 0 {
		return
	}
	o.CommonHttpProtocolOptions = &core.HttpProtocolOptions{}
	if l.RequestsPerConnection > 0 {
		o.CommonHttpProtocolOptions.MaxRequestsPerConnection = wrapperspb.UInt32(l.RequestsPerConnection)
	}
	if l.IdleTimeout > 0 {
		o.CommonHttpProtocolOptions.IdleTimeout = durationpb.New(l.IdleTimeout)
	}
}

// defaultPanic is Envoy's default panic threshold: if fewer than this percentage of the endpoints are healthy,
// Envoy uses all of them.
const defaultPanic = 50

// detectOutliers sets the outlier detection of a cluster.
func detectOutliers(c *cluster.Cluster, p mesh.Outliers) {
	d := c.OutlierDetection
	const never, always = 0, 100
	set := func(count, enforcing **wrapperspb.UInt32Value, n *uint32) {
		switch {
		case n == nil:
		case *n == 0:
			*enforcing = wrapperspb.UInt32(never)
		default:
			*count, *enforcing = wrapperspb.UInt32(*n), wrapperspb.UInt32(always)
		}
	}
	set(&d.Consecutive_5Xx, &d.EnforcingConsecutive_5Xx, p.Errors5xx)
	set(&d.ConsecutiveGatewayFailure, &d.EnforcingConsecutiveGatewayFailure, p.GatewayErrors)
	set(&d.ConsecutiveLocalOriginFailure, &d.EnforcingConsecutiveLocalOriginFailure, p.LocalFailures)
	if p.Interval > 0 {
		d.Interval = durationpb.New(p.Interval)
	}
	if p.EjectionTime > 0 {
		// As without a policy, the time is multiplied by the number of ejections, at most by six.
		d.BaseEjectionTime, d.MaxEjectionTime = durationpb.New(p.EjectionTime), durationpb.New(6*p.EjectionTime)
	}
	if p.EjectionPercent == nil {
		return
	}
	d.MaxEjectionPercent = wrapperspb.UInt32(*p.EjectionPercent)
	if left := 100 - *p.EjectionPercent; left < defaultPanic {
		// An endpoint that the policy allows to be ejected stays ejected: Envoy must not use it for
		// lack of others.
		c.CommonLbConfig = &cluster.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: float64(left)}}
	}
}
