package proxy

import (
	"context"
	"time"
)

// When may a proxy stop after SIGTERM?
//
// After the drain time the proxy accepts no new inbound connections, but goes on serving the
// applications' own calls until it knows that no application needs it. There are two proofs
// that all applications of the pod have ended: the states that their gates publish, and the
// order of the kubelet, which stops a native sidecar after the applications. With a proof the
// proxy stops at once. Without one it looks at sockets: an open socket shows that an application
// lives, but the absence of sockets proves nothing, since an application may make its last call
// a second later. So without a proof the proxy stays for a minimum time, and then for as long as
// other users of the pod have sockets. The supervisor enforces the pod's grace period.

// evidence gives access to the facts that show whether the pod's applications need the proxy.
type evidence struct {
	// ended is closed when all applications have provably ended. Nil: nothing can prove it.
	ended <-chan struct{}

	// sockets counts open sockets of the pod's other users. If it returns an error, the proxy stays.
	sockets func() (int, error)

	// connections counts Envoy's connections and those that wait for it, for drainLimits.onZero.
	connections func(context.Context) (int, error)
}

// drainLimits configure how long to stay without a proof.
type drainLimits struct {
	least   time.Duration // minimum stay (terminationDrainDuration)
	onZero  bool          // stop when Envoy has no connection (EXIT_ON_ZERO_ACTIVE_CONNECTIONS)
	minimum time.Duration // with onZero: minimum stay (MINIMUM_DRAIN_DURATION)
}

// socketPoll is the interval at which sockets are listed. No event announces that one is closed,
// and a listing takes milliseconds.
const socketPoll = 200 * time.Millisecond

// A drainReason is the reason why the proxy may stop.
type drainReason string

const (
	proved      drainReason = "all applications have ended"
	silent      drainReason = "the drain time is over and no other user of the pod has a socket"
	idle        drainReason = "no connection is left" // with onZero
	interrupted drainReason = "the wait was interrupted"
)

// awaitEvidence waits until the proxy may stop, and returns the reason.
func awaitEvidence(ctx context.Context, e evidence, l drainLimits) drainReason {
	least := l.least
	if l.onZero {
		least = l.minimum
	}
	over := time.NewTimer(least)
	defer over.Stop()
	var poll <-chan time.Time
	for {
		select {
		case <-e.ended:
			return proved
		case <-ctx.Done():
			return interrupted
		case <-over.C:
		case <-poll:
		}
		if reason, done := quiet(ctx, e, l.onZero); done {
			return reason
		}
		poll = time.After(socketPoll)
	}
}

// quiet reports whether no connection (with onZero) or no socket is left, and the reason to stop.
func quiet(ctx context.Context, e evidence, onZero bool) (drainReason, bool) {
	if onZero {
		n, err := e.connections(ctx)
		return idle, err == nil && n == 0
	}
	n, err := e.sockets()
	return silent, err == nil && n == 0
}
