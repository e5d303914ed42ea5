package resilience

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// BenchmarkCall measures the time of a successful call, with each policy alone and with all of them, in plain
// failsafe-go and in this package. It asserts nothing.
func BenchmarkCall(b *testing.B) {
	retries := func() failsafe.Policy[int] {
		return retrypolicy.NewBuilder[int]().WithBackoff(10*time.Millisecond, 100*time.Millisecond).Build()
	}
	breaker := func() failsafe.Policy[int] {
		return circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, 10*time.Second).Build()
	}
	adaptive := func() failsafe.Policy[int] {
		return adaptivelimiter.NewBuilder[int]().WithLimits(1, 100, 50).Build()
	}
	hedge := func() failsafe.Policy[int] { return hedgepolicy.NewWithDelay[int](time.Second) }
	preset := Default("test")
	preset.Budget = ample(b)
	everything := ForReads("test", time.Second)
	everything.Budget, everything.Bulkhead, everything.Adaptive = ample(b), &Bulkhead{Max: 100}, &Adaptive{Min: 1, Initial: 50, Max: 100}
	for _, bb := range []struct {
		name string
		bare []failsafe.Policy[int]
		ours Options
	}{
		{"none", nil, Options{}},
		{"timeout", []failsafe.Policy[int]{timeout.New[int](time.Second)}, Options{Timeout: time.Second}},
		{"retry", []failsafe.Policy[int]{retries()}, Options{Retry: twoRetries}},
		{"breaker", []failsafe.Policy[int]{breaker()}, Options{Breaker: preset.Breaker}},
		{"bulkhead", []failsafe.Policy[int]{bulkhead.New[int](100)}, Options{Bulkhead: &Bulkhead{Max: 100}}},
		{"adaptive", []failsafe.Policy[int]{adaptive()}, Options{Adaptive: everything.Adaptive}},
		{"hedge", []failsafe.Policy[int]{hedge()}, Options{Hedge: &Hedge{Delay: time.Second, Max: 1}}},
		{"Default", []failsafe.Policy[int]{timeout.New[int](15 * time.Second), retries(), breaker(), timeout.New[int](5 * time.Second)}, preset},
		{"all", []failsafe.Policy[int]{timeout.New[int](15 * time.Second), retries(), hedge(), bulkhead.New[int](100), adaptive(), breaker(), timeout.New[int](5 * time.Second)}, everything},
	} {
		ctx := WithIdempotent(context.Background())
		b.Run(bb.name+"/failsafe-go", func(b *testing.B) {
			executor := failsafe.With(bb.bare...)
			b.ReportAllocs()
			for b.Loop() {
				executor.WithContext(ctx).GetWithExecution(func(failsafe.Execution[int]) (int, error) { return 1, nil })
			}
		})
		b.Run(bb.name+"/resilience", func(b *testing.B) {
			bb.ours.Name, bb.ours.Budget = "test", ample(b)
			p, err := New(bb.ours)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				Do(ctx, p, func(context.Context) (int, error) { return 1, nil })
			}
		})
	}
}

type instant struct{}

func (instant) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// BenchmarkRoundTrip measures what a Transport adds to a request that succeeds, with one host and with 10,000.
func BenchmarkRoundTrip(b *testing.B) {
	for _, hosts := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("%d hosts", hosts), func(b *testing.B) {
			o := Default("test")
			o.Budget = ample(b)
			tr, err := NewTransport(instant{}, HTTPOptions{Options: o})
			if err != nil {
				b.Fatal(err)
			}
			requests := make([]*http.Request, hosts)
			for i := range requests {
				requests[i], _ = http.NewRequest("GET", fmt.Sprintf("http://host-%d.test/", i), nil)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				resp, err := tr.RoundTrip(requests[i%hosts])
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}

// BenchmarkHosts measures the memory that a Transport retains for each host, as B/host.
func BenchmarkHosts(b *testing.B) {
	adaptive := Default("test")
	adaptive.Adaptive = &Adaptive{Min: 1, Initial: 20, Max: 200}
	for name, o := range map[string]Options{"Default": Default("test"), "Default and Adaptive": adaptive} {
		b.Run(name, func(b *testing.B) {
			const hosts = 10_000
			for b.Loop() {
				p, err := New(o)
				if err != nil {
					b.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range hosts {
					p.For(fmt.Sprintf("http://host-%d.test", i))
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/hosts, "B/host")
				runtime.KeepAlive(p)
			}
		})
	}
}
