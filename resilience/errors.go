package resilience

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Errors of calls that a policy rejected or ended, for [errors.Is].
var (
	ErrOpen    = errors.New("circuit breaker open")
	ErrFull    = errors.New("bulkhead full")
	ErrLimited = errors.New("adaptive limit reached")
	// ErrTimeout is the error of Options.Timeout and Options.TryTimeout. It also matches
	// [context.DeadlineExceeded], and is a net.Error whose Timeout is true.
	ErrTimeout = errors.New("timeout")
)

// errNoHedge is the error of a hedge that was not started. It is never the error of a call, because the call
// waits for the slow try that is still running.
var errNoHedge = errors.New("the budget has no token for a hedge")

// reasonOf returns Event.Reason for an error of admit.
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

// reject wraps the error of a policy that did not admit a try, with the names of the policy and the
// target.
func (t *target) reject(err error) error {
	if t.name == "" {
		return fmt.Errorf("resilience: %s: %w", t.shared.options.Name, err)
	}
	return fmt.Errorf("resilience: %s: %s: %w", t.shared.options.Name, t.name, err)
}

type timeoutError struct {
	policy, field string
	limit         time.Duration
	before        error // error of the last failed try, if any
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

// A StatusError is passed to a Fallback if the last try ended with a response that counts as a failure.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
}

// retryAfterOf returns the result of an error's method RetryAfter; 0 if it has none.
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
