package resilience

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// errRefused is the error of package net for a refused connection.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

var errBoom = errors.New("boom")

// A record collects the events of a policy.
type record struct {
	mu     sync.Mutex
	events []Event
}

func (r *record) observe(_ context.Context, e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// of returns the events of a decision, in order.
func (r *record) of(d Decision) (out []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Decision == d {
			out = append(out, e)
		}
	}
	return out
}

// decisions returns the decisions of all events except Done, in order.
func (r *record) decisions() (out []Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Decision != Done {
			out = append(out, e.Decision)
		}
	}
	return out
}

func budget(t testing.TB, o BudgetOptions) *Budget {
	t.Helper()
	b, err := NewBudget(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ample returns a budget that a test does not exhaust. Tests use it in place of [ProcessBudget], which they would
// share.
func ample(t testing.TB) *Budget {
	return budget(t, BudgetOptions{Ratio: 1, PerSecond: 1000, Burst: 1000})
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// policy returns a policy whose events are recorded.
func policy(t testing.TB, o Options) (*Policy, *record) {
	t.Helper()
	r := &record{}
	o.Name, o.Observe = "test", r.observe
	if o.Budget == nil {
		o.Budget = ample(t)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

var twoRetries = &Retry{Tries: 3, MinDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond, MaxRetryAfter: 5 * time.Second}

// failing returns a function that fails n times with err and then returns "done", and a counter of its calls.
func failing(n int, err error) (func(context.Context) (string, error), *int) {
	calls := new(int)
	return func(context.Context) (string, error) {
		*calls++
		if *calls <= n {
			return "", err
		}
		return "done", nil
	}, calls
}
