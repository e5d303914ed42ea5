package resilience

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAWrongOptionIsAnErrorAtConstruction(t *testing.T) {
	good := func() HTTPOptions {
		o := ForReads("test", 50*time.Millisecond)
		o.Bulkhead = &Bulkhead{Max: 10}
		o.Adaptive = &Adaptive{Min: 1, Initial: 10, Max: 100}
		return HTTPOptions{Options: o}
	}
	if _, err := NewTransport(nil, good()); err != nil {
		t.Fatalf("what the cases change is not good: %v", err)
	}
	tests := map[string]func(*HTTPOptions){
		`Options.Name is empty: must be what events and metrics call the policy, such as "orders"`:        func(o *HTTPOptions) { o.Name = "" },
		"Options.Timeout is -1s: must not be negative":                                                    func(o *HTTPOptions) { o.Timeout = -time.Second },
		"Options.TryTimeout is -1ns: must not be negative":                                                func(o *HTTPOptions) { o.TryTimeout = -1 },
		"Options.TryTimeout is 20s: must be at most Options.Timeout, 15s":                                 func(o *HTTPOptions) { o.TryTimeout = 20 * time.Second },
		"Options.Start is -1ns: must not be negative":                                                     func(o *HTTPOptions) { o.Start = -1 },
		"Options.Start has no effect without Options.Retry or Options.Breaker: set one of them":           func(o *HTTPOptions) { o.Retry, o.Breaker = nil, nil },
		"Options.MaxTargets is -1: must be 0 to 1000000":                                                  func(o *HTTPOptions) { o.MaxTargets = -1 },
		"Options.MaxTargets is 1.000001e+06: must be 0 to 1000000":                                        func(o *HTTPOptions) { o.MaxTargets = 1_000_001 },
		"Options.Budget is a zero Budget: must be one of NewBudget":                                       func(o *HTTPOptions) { o.Budget = new(Budget) },
		"Retry.Tries is 1: must be 2 to 100":                                                              func(o *HTTPOptions) { o.Retry.Tries = 1 },
		"Retry.MinDelay is 0s: must be above 0":                                                           func(o *HTTPOptions) { o.Retry.MinDelay = 0 },
		"Retry.MaxDelay is 1ms: must be at least Retry.MinDelay, 25ms":                                    func(o *HTTPOptions) { o.Retry.MaxDelay = time.Millisecond },
		"Retry.MaxRetryAfter is -1ns: must not be negative":                                               func(o *HTTPOptions) { o.Retry.MaxRetryAfter = -1 },
		"Hedge.Delay is 0s: must be above 0":                                                              func(o *HTTPOptions) { o.Hedge.Delay = 0 },
		"Hedge.Max is 11: must be 1 to 10":                                                                func(o *HTTPOptions) { o.Hedge.Max = 11 },
		"Breaker.FailureRatio is 0: must be above 0, or successes would open the breaker":                 func(o *HTTPOptions) { o.Breaker.FailureRatio = 0 },
		"Breaker.FailureRatio is 50: must be 0 to 1":                                                      func(o *HTTPOptions) { o.Breaker.FailureRatio = 50 },
		"Breaker.FailureRatio is NaN: must be 0 to 1":                                                     func(o *HTTPOptions) { o.Breaker.FailureRatio = math.NaN() },
		"Breaker.MinTries is 0: must be 1 to 1000000":                                                     func(o *HTTPOptions) { o.Breaker.MinTries = 0 },
		"Breaker.Window is 1ns: must be at least 10ms":                                                    func(o *HTTPOptions) { o.Breaker.Window = 1 },
		"Breaker.OpenFor is 0s: must be above 0":                                                          func(o *HTTPOptions) { o.Breaker.OpenFor = 0 },
		"Breaker.Probes is -1: must be 0 to 1000":                                                         func(o *HTTPOptions) { o.Breaker.Probes = -1 },
		"Bulkhead.Max is 0: must be 1 to 1000000":                                                         func(o *HTTPOptions) { o.Bulkhead.Max = 0 },
		"Bulkhead.MaxWait is -1ns: must not be negative":                                                  func(o *HTTPOptions) { o.Bulkhead.MaxWait = -1 },
		"Adaptive.Min, Initial and Max are 1, 200 and 100: must be 1 <= Min <= Initial <= Max <= 1000000": func(o *HTTPOptions) { o.Adaptive.Initial = 200 },
		"Adaptive.MaxWait is -1ns: must not be negative":                                                  func(o *HTTPOptions) { o.Adaptive.MaxWait = -1 },
		"HTTPOptions.BufferBody is -1: must be 0 to 67108864":                                             func(o *HTTPOptions) { o.BufferBody = -1 },
		"Options.Classify has no effect on HTTP: set HTTPOptions.Classify, which sees the response too":   func(o *HTTPOptions) { o.Options.Classify = Classify },
	}
	for want, change := range tests {
		t.Run(want, func(t *testing.T) {
			o := good()
			change(&o)
			if _, err := NewTransport(http.DefaultTransport, o); err == nil || err.Error() != "resilience: "+want {
				t.Errorf("error %q, want %q", err, "resilience: "+want)
			}
		})
	}
	t.Run("all errors are told at once", func(t *testing.T) {
		_, err := New(Options{Timeout: -1, Retry: &Retry{}})
		for _, field := range []string{"Options.Name", "Options.Timeout", "Retry.Tries", "Retry.MinDelay"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s is not in %v", field, err)
			}
		}
	})
}

func TestPresetsAreValid(t *testing.T) {
	for _, o := range []Options{Default("a"), ForStart("b"), ForReads("c", time.Millisecond)} {
		if _, err := New(o); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
}

func TestAWrongBudgetIsAnError(t *testing.T) {
	for want, o := range map[string]BudgetOptions{
		"BudgetOptions.Ratio is 2: must be 0 to 1":                                                                    {Ratio: 2, Burst: 1},
		"BudgetOptions.PerSecond is -1: must be 0 to 1000":                                                            {PerSecond: -1, Burst: 1},
		"BudgetOptions.Burst is 0: must be 1 to 1000":                                                                 {Ratio: 1},
		"BudgetOptions.Ratio and PerSecond are 0: once the burst is used, nothing would be repeated; set one of them": {Burst: 1},
	} {
		if _, err := NewBudget(o); err == nil || err.Error() != "resilience: "+want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
