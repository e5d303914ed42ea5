package otelresilience_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"outrider.dev/resilience"
	"outrider.dev/resilience/otelresilience"
)

func TestMetrics(t *testing.T) {
	reader := metric.NewManualReader()
	observe, err := otelresilience.Observe(metric.NewMeterProvider(metric.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	budget, err := resilience.NewBudget(resilience.BudgetOptions{PerSecond: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	p, err := resilience.New(resilience.Options{
		Name: "orders", Idempotent: true, Budget: budget, Observe: observe,
		Retry:   &resilience.Retry{Tries: 3, MinDelay: 1, MaxDelay: 1},
		Breaker: &resilience.Breaker{FailureRatio: 1, MinTries: 3, Window: time.Minute, OpenFor: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, err error) {
		resilience.Do(ctx, p, func(context.Context) (int, error) { return 0, err })
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	call(gone, nil)
	call(t.Context(), errors.New("away")) // three tries, which open the breaker
	call(t.Context(), nil)                // rejected
	observe(t.Context(), resilience.Event{Policy: "orders", Decision: resilience.DecidedLimit, Limit: 7})

	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"resilience.call.duration{resilience.outcome=canceled,resilience.policy=orders} count 1",
		"resilience.call.duration{resilience.outcome=lost,resilience.policy=orders} count 1",
		"resilience.call.duration{resilience.outcome=rejected,resilience.policy=orders} count 1",
		"resilience.call.tries{resilience.policy=orders} sum 3",
		"resilience.calls{resilience.outcome=canceled,resilience.policy=orders} 1",
		"resilience.calls{resilience.outcome=lost,resilience.policy=orders} 1",
		"resilience.calls{resilience.outcome=rejected,resilience.policy=orders} 1",
		"resilience.decisions{resilience.decision=breaker-open,resilience.policy=orders} 1",
		"resilience.decisions{resilience.decision=limit,resilience.policy=orders} 1",
		"resilience.decisions{resilience.decision=no-retry,resilience.policy=orders,resilience.reason=tries} 1",
		"resilience.decisions{resilience.decision=reject,resilience.policy=orders,resilience.reason=breaker open} 1",
		"resilience.decisions{resilience.decision=retry,resilience.policy=orders} 2",
		"resilience.limit{resilience.policy=orders} 7",
	}
	if got := points(t, data); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// points returns the values of all metrics as sorted text.
func points(t *testing.T, data metricdata.ResourceMetrics) (out []string) {
	t.Helper()
	name := func(metric string, set attribute.Set) string {
		return fmt.Sprintf("%s{%s}", metric, set.Encoded(attribute.DefaultEncoder()))
	}
	for _, s := range data.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out = append(out, fmt.Sprintf("%s %d", name(m.Name, p.Attributes), p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					out = append(out, fmt.Sprintf("%s %d", name(m.Name, p.Attributes), p.Value))
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					out = append(out, fmt.Sprintf("%s sum %d", name(m.Name, p.Attributes), p.Sum))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out = append(out, fmt.Sprintf("%s count %d", name(m.Name, p.Attributes), p.Count))
				}
			default:
				t.Errorf("%s has data of type %T", m.Name, d)
			}
		}
	}
	slices.Sort(out)
	return out
}

// An application uses the provider of its OpenTelemetry SDK.
func ExampleObserve() {
	observe, err := otelresilience.Observe(noop.NewMeterProvider())
	if err != nil {
		fmt.Println(err)
		return
	}
	o := resilience.Default("orders")
	o.Observe = observe
	policy, err := resilience.New(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := resilience.Do(context.Background(), policy, func(context.Context) (int, error) { return 7, nil })
	fmt.Println(n, err)
	// Output: 7 <nil>
}
