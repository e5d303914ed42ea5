// Package otelresilience records OpenTelemetry metrics of the decisions of package resilience's
// policies.
//
//	o := resilience.Default("orders")
//	o.Observe, err = otelresilience.Observe(otel.GetMeterProvider())
//
// The metrics are
//
//	resilience.calls          counter, {call}        policy, outcome
//	resilience.call.duration  histogram, s           policy, outcome
//	resilience.call.tries     histogram, {try}       policy
//	resilience.decisions      counter, {decision}    policy, decision, reason
//	resilience.limit          gauge, {try}           policy, the adaptive limit that was set last
//
// with the attributes resilience.policy, resilience.outcome (a class of package resilience, or "canceled",
// "timeout", "rejected"), resilience.decision and resilience.reason. There is no attribute for the target,
// because the number of targets is not bounded. The log contains the target.
package otelresilience

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"outrider.dev/resilience"
)

// Observe returns a function for Options.Observe, which may serve any number of policies. It returns
// the provider's error if an instrument cannot be created.
func Observe(provider metric.MeterProvider) (func(context.Context, resilience.Event), error) {
	meter := provider.Meter("outrider.dev/resilience/otelresilience")
	calls, err1 := meter.Int64Counter("resilience.calls", metric.WithUnit("{call}"), metric.WithDescription("Calls that ended"))
	duration, err2 := meter.Float64Histogram("resilience.call.duration", metric.WithUnit("s"), metric.WithDescription("Time of a call with all its tries"))
	tries, err3 := meter.Int64Histogram("resilience.call.tries", metric.WithUnit("{try}"), metric.WithDescription("Tries of a call"), metric.WithExplicitBucketBoundaries(0, 1, 2, 3, 5, 10, 100))
	decisions, err4 := meter.Int64Counter("resilience.decisions", metric.WithUnit("{decision}"), metric.WithDescription("Decisions of policies"))
	limit, err5 := meter.Int64Gauge("resilience.limit", metric.WithUnit("{try}"), metric.WithDescription("Adaptive limit that was set last"))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	return func(ctx context.Context, e resilience.Event) {
		policy := attribute.String("resilience.policy", e.Policy)
		if e.Decision == resilience.Done {
			attrs := metric.WithAttributeSet(attribute.NewSet(policy, attribute.String("resilience.outcome", outcome(e))))
			calls.Add(ctx, 1, attrs)
			duration.Record(ctx, e.Duration.Seconds(), attrs)
			tries.Record(ctx, int64(e.Try), metric.WithAttributeSet(attribute.NewSet(policy)))
			return
		}
		attrs := []attribute.KeyValue{policy, attribute.String("resilience.decision", string(e.Decision))}
		if e.Reason != "" {
			attrs = append(attrs, attribute.String("resilience.reason", e.Reason))
		}
		decisions.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(attrs...)))
		if e.Decision == resilience.DecidedLimit {
			limit.Record(ctx, int64(e.Limit), metric.WithAttributeSet(attribute.NewSet(policy)))
		}
	}, nil
}

func outcome(e resilience.Event) string {
	switch {
	case errors.Is(e.Err, context.Canceled):
		return "canceled"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(e.Err, resilience.ErrOpen), errors.Is(e.Err, resilience.ErrFull), errors.Is(e.Err, resilience.ErrLimited):
		return "rejected"
	default:
		return e.Class.String()
	}
}
