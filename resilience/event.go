package resilience

import (
	"context"
	"log/slog"
	"time"
)

// A Decision names an action of a policy.
type Decision string

const (
	DecidedRetry    Decision = "retry"             // another try follows after Event.Delay
	DecidedNoRetry  Decision = "no-retry"          // the call failed and is not repeated: Event.Reason
	DecidedHedge    Decision = "hedge"             // another try starts while a slow one continues
	DecidedNoHedge  Decision = "no-hedge"          // no other try starts while a slow one continues: Event.Reason
	DecidedReject   Decision = "reject"            // a try is not admitted: Event.Reason
	DecidedForgive  Decision = "forgive"           // the breaker ignores a failure within Options.Start
	DecidedOpen     Decision = "breaker-open"      // the breaker of a target opened
	DecidedHalfOpen Decision = "breaker-half-open" // the breaker lets probes through
	DecidedClose    Decision = "breaker-closed"    // the breaker closed
	DecidedLimit    Decision = "limit"             // the adaptive limit of a target changed to Event.Limit
	DecidedFallback Decision = "fallback"          // the fallback's result replaces a failure
	Done            Decision = "done"              // a call ended, after Event.Try tries and Event.Duration, with Event.Err
)

// An Event describes one decision, or the end of a call.
type Event struct {
	Policy   string // Options.Name
	Decision Decision
	Target   string // the host in HTTP, the target of the connection in gRPC; empty for others
	Class    Class  // of the last try
	// Reason is the reason for not repeating, not hedging or not admitting a try; one of: "not idempotent", "body
	// cannot be sent again", "tries", "retry-after", "deadline", "budget", "breaker open", "bulkhead full",
	// "limit".
	Reason   string
	Try      int           // tries made so far, including hedges
	Delay    time.Duration // before the next try
	Duration time.Duration // of the call, for Done
	Limit    int           // for DecidedLimit
	Err      error         // of the last try; nil if it was a response
}

// levels are the log levels of decisions; the default is Debug.
var levels = map[Decision]slog.Level{
	DecidedOpen:     slog.LevelWarn,
	DecidedHalfOpen: slog.LevelInfo,
	DecidedClose:    slog.LevelInfo,
}

// emit passes an event to the observer and to the log. The end of a call is not logged.
func (s *shared) emit(ctx context.Context, e Event) {
	e.Policy = s.options.Name
	if s.options.Observe != nil {
		s.options.Observe(ctx, e)
	}
	if s.options.Logger == nil || e.Decision == Done {
		return
	}
	level, ok := levels[e.Decision]
	if !ok {
		level = slog.LevelDebug
	}
	if !s.options.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("policy", e.Policy), slog.String("decision", string(e.Decision))}
	if e.Target != "" {
		attrs = append(attrs, slog.String("target", e.Target))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	if e.Try > 0 {
		attrs = append(attrs, slog.Int("try", e.Try), slog.String("class", e.Class.String()))
	}
	if e.Delay > 0 {
		attrs = append(attrs, slog.Duration("delay", e.Delay))
	}
	if e.Limit > 0 {
		attrs = append(attrs, slog.Int("limit", e.Limit))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	s.options.Logger.LogAttrs(ctx, level, "resilience", attrs...)
}
