// Package resilience makes calls to other services survive their failures: timeout, retry, hedge,
// circuit breaker, bulkhead, adaptive concurrency and fallback. It puts a small interface on
// failsafe-go (https://failsafe-go.dev).
//
// It adds to these patterns:
//
//   - It repeats only what may be repeated: idempotent calls, and requests that were not sent.
//   - A [Budget] bounds all retries and hedges of a process, so that a dead server or the
//     restart of a fleet does not become a storm of retries.
//   - It expects refused connections while a process starts: within Options.Start, they mean that the dependency
//     is not there yet. They do not open the breaker, and are retried until the deadline.
//   - The deadline of the context covers all tries and the waits between them.
//   - A call that its caller cancels does not count as a failure of the dependency.
//   - An invalid option is an error of [New] or [NewTransport], which names the field and the valid values. So no
//     mistake stays hidden until the first failure of a call.
//   - Every decision is reported as an [Event], to slog (Options.Logger) and to metrics (Options.Observe).
//
// # Use
//
// For HTTP, wrap the transport of a client. Each host gets its own breaker:
//
//	transport, err := resilience.NewTransport(nil, resilience.HTTPOptions{Options: resilience.Default("orders")})
//	if err != nil {
//		return err
//	}
//	client := &http.Client{Transport: transport}
//
// For anything else, [Do] calls a function under a policy:
//
//	policy, err := resilience.New(resilience.Default("orders"))
//	...
//	row, err := resilience.Do(resilience.WithIdempotent(ctx), policy, func(ctx context.Context) (Row, error) {
//		return db.Find(ctx, id)
//	})
//
// For gRPC, module outrider.dev/resilience/grpcresilience has interceptors. For OpenTelemetry, module
// outrider.dev/resilience/otelresilience has metrics. These are separate modules, so that this module needs only
// failsafe-go and the standard library.
//
// # Order
//
// From the outside to the inside: fallback, timeout of the call, retry, hedge, bulkhead, adaptive limit, breaker,
// timeout of the try. So each try, also a repeated one, takes a slot of bulkhead and limiter, and the breaker
// counts it. A call that a policy rejects ([ErrOpen], [ErrFull], [ErrLimited]) is not repeated.
//
// # Which options
//
// Begin with a preset: [Default], [ForStart] for the calls without which a process cannot start, or [ForReads]
// for reads whose latency matters. Change only values for which you have measured a better one. Set a deadline on
// the context: only the caller knows how long the answer is useful.
//
// # Limits
//
// Memory is bounded by Options.MaxTargets, request bodies by HTTPOptions.BufferBody. A function that ignores its
// context cannot be stopped. All state is in memory: after a restart of the process, breakers are closed and
// budgets full.
//
// # Versions
//
// The module follows Semantic Versioning 2.0.0. The interface consists of the exported names, and also of
// the names of decisions, classes and reasons, because metrics and logs depend on them. Until v1.0.0 a
// minor version may break it, and CHANGELOG.md says how to adapt. From v1.0.0 on only a major version does.
// The zero value of a new option turns it off. Numbers of the presets, and texts of errors, may change
// in any minor version. The three modules are released together, with the same version. The two latest
// releases of Go are supported.
package resilience
