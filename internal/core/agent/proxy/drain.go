package proxy

import (
	"context"
	"time"
)

// When may a proxy stop after SIGTERM?
//
// It takes no new inbound connections after a while, and goes on serving the application's
// own calls. How long depends on evidence. That all applications of the pod have ended can
// be proved: by their gates' states, or by the kubelet's order, which stops a native
// sidecar after them. Then the proxy stops at once. Open sockets prove that an application
// lives, but their absence proves nothing: it may make its last call a second later. So
// without proof the proxy stays for a minimum time, and then as long as other users of the pod
// have sockets. The supervisor enforces the pod's grace period.

// evidence is what can be known about the applications of the pod.
type evidence struct {
	// ended is closed when all applications have provably ended. Nil: nothing can prove it.
	ended <-chan struct{}

	// sockets counts open sockets of the pod's other users. After an error the proxy stays.
	sockets func() (int, error)

	// connections counts Envoy's own connections from and to others, for drainLimits.onZero.
	connections func(context.Context) (int, error)
}

// drainLimits say how long to stay without proof.
type drainLimits struct {
	least   time.Duration // minimum stay (terminationDrainDuration)
	onZero  bool          // stop when Envoy has no connection (EXIT_ON_ZERO_ACTIVE_CONNECTIONS)
	minimum time.Duration // with onZero: minimum stay (MINIMUM_DRAIN_DURATION)
}

// socketPoll is how often sockets are listed, which no event announces and takes milliseconds.
const socketPoll = 200 * time.Millisecond

// A drainReason is why the proxy may stop.
type drainReason string

const (
	proved      drainReason = "all applications have ended"
	silent      drainReason = "the drain time is over and no other user of the pod has a socket"
	idle        drainReason = "no connection is left" // with onZero
	interrupted drainReason = "the wait was interrupted"
)

// awaitEvidence returns when the proxy may stop, and why.
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

// quiet reports whether no connection or socket is left.
func quiet(ctx context.Context, e evidence, onZero bool) (drainReason, bool) {
	if onZero {
		n, err := e.connections(ctx)
		return idle, err == nil && n == 0
	}
	n, err := e.sockets()
	return silent, err == nil && n == 0
}
