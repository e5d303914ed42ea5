package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"outrider.dev/resilience"
)

// A client whose server is not ready at first.
func ExampleNewTransport() {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "7 orders")
	}))
	defer server.Close()

	transport, err := resilience.NewTransport(nil, resilience.HTTPOptions{Options: resilience.Default("orders")})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}

	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s after %d requests\n", text, requests)
	// Output: 7 orders after 3 requests
}

// Any function can be called under a policy. It is called again only if the caller declares that a second call
// does no harm, by WithIdempotent.
func ExampleDo() {
	policy, err := resilience.New(resilience.Default("stock"))
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := 0
	stock := func(ctx context.Context) (int, error) {
		if calls++; calls == 1 {
			return 0, errors.New("connection lost")
		}
		return 42, nil
	}

	n, err := resilience.Do(resilience.WithIdempotent(context.Background()), policy, stock)
	fmt.Println(n, err)
	// Output: 42 <nil>
}

// The fallback serves a default while the dependency is unavailable.
func ExampleDoOr() {
	policy, err := resilience.New(resilience.Options{Name: "recommendations", Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	fetch := func(context.Context) (string, error) { return "", errors.New("away") }
	bestsellers := func(_ context.Context, err error) (string, error) { return "bestsellers", nil }

	text, err := resilience.DoOr(context.Background(), policy, fetch, bestsellers)
	fmt.Println(text, err)
	// Output: bestsellers <nil>
}

// New reports invalid options.
func ExampleNew_wrong() {
	_, err := resilience.New(resilience.Options{
		Name:    "orders",
		Retry:   &resilience.Retry{Tries: 3, MinDelay: time.Second, MaxDelay: time.Millisecond},
		Breaker: &resilience.Breaker{FailureRatio: 50, MinTries: 20, Window: time.Second, OpenFor: time.Second},
	})
	fmt.Println(err)
	// Output:
	// resilience: Retry.MaxDelay is 1ms: must be at least Retry.MinDelay, 1s
	// Breaker.FailureRatio is 50: must be 0 to 1
}

// Every decision is an event.
func ExampleOptions_observe() {
	o := resilience.Default("orders")
	o.Idempotent = true
	o.Observe = func(_ context.Context, e resilience.Event) {
		fmt.Printf("%s: %s %s after %d tries\n", e.Policy, e.Decision, e.Reason, e.Try)
	}
	policy, err := resilience.New(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	resilience.Do(context.Background(), policy, func(context.Context) (int, error) {
		return 0, errors.New("away")
	})
	// Output:
	// orders: retry  after 1 tries
	// orders: retry  after 2 tries
	// orders: no-retry tries after 3 tries
	// orders: done  after 3 tries
}

// Policies that share a budget limit their retries together.
func ExampleNewBudget() {
	budget, err := resilience.NewBudget(resilience.BudgetOptions{Ratio: 0.1, Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	o := resilience.Default("orders")
	o.Budget, o.Idempotent = budget, true
	policy, err := resilience.New(o)
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := 0
	for range 10 {
		resilience.Do(context.Background(), policy, func(context.Context) (int, error) {
			calls++
			return 0, errors.New("away")
		})
	}
	fmt.Println(calls, "tries of 10 calls")
	// Output: 11 tries of 10 calls
}

// Several dependencies share all options, but each gets its own breaker.
func ExamplePolicy_For() {
	policy, err := resilience.New(resilience.Options{
		Name:    "shards",
		Breaker: &resilience.Breaker{FailureRatio: 0.5, MinTries: 2, Window: time.Minute, OpenFor: time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, err = resilience.Do(context.Background(), policy.For("shard-7"), func(context.Context) (int, error) {
			return 0, errors.New("away")
		})
	}
	fmt.Println(err)
	_, err = resilience.Do(context.Background(), policy.For("shard-8"), func(context.Context) (int, error) { return 8, nil })
	fmt.Println(err)
	// Output:
	// resilience: shards: shard-7: circuit breaker open
	// <nil>
}
