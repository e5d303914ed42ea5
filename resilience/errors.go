package resilience

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Errors of calls that a policy ended, for [errors.Is].
var (
	ErrOpen    = errors.New("circuit breaker open")
	ErrFull    = errors.New("bulkhead full")
	ErrLimited = errors.New("adaptive limit reached")
	// ErrTimeout is the error of Options.Timeout and Options.TryTimeout. It is also a
	// [context.DeadlineExceeded], and a net.Error whose Timeout is true.
	ErrTimeout = errors.New("timeout")
)

// errNoHedge is never the error of a call: a try that it would have joined is still running.
var errNoHedge = errors.New("the budget has no token for a hedge")

// reasons of events.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrOpen):
		return "breaker open"
	case errors.Is(err, ErrFull):
		return "bulkhead full"
	default:
		return "limit"
	}
}

// reject says which policy did not make a try, and for which target.
func (t *target) reject(err error) error {
	if t.name == "" {
		return fmt.Errorf("resilience: %s: %w", t.shared.options.Name, err)
	}
	return fmt.Errorf("resilience: %s: %s: %w", t.shared.options.Name, t.name, err)
}

type timeoutError struct {
	policy, field string
	limit         time.Duration
	before        error // of the try before, if there was one
}

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("resilience: %s: no result within %s, %v", e.policy, e.field, e.limit)
	if e.before != nil {
		text += "; the try before: " + e.before.Error()
	}
	return text
}

func (e *timeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}
func (e *timeoutError) Unwrap() error   { return e.before }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }

// A StatusError is passed to a Fallback when the last try ended in a response that is a
// failure.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
}

// retryAfterOf returns the time after which an error asks for the next try.
func retryAfterOf(err error) time.Duration {
	if err == nil {
		return 0
	}
	if after, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return after.RetryAfter()
	}
	return 0
}
