// Package drain knows when a proxy may leave.
//
// After SIGTERM the proxy takes no new inbound connections after a while and goes on
// serving the application's own calls. How long is a question of evidence. That all
// applications of the pod have ended can be proved: by their gates' states, or by the
// kubelet's order, which ends a native sidecar after them. Then the proxy leaves at
// once. Sockets are evidence of life, never of death: an application that has none open
// may make its last call a second later. So without proof the proxy stays for a set time
// at least, and then as long as other users of the pod hold sockets.
//
// The upper bound, what is left of the pod's grace period, is the supervisor's.
package drain

import (
	"context"
	"time"
)

// Evidence is what can be known about the applications of the pod.
type Evidence struct {
	// Ended is closed when all applications have provably ended. Nil: nothing can prove it.
	Ended <-chan struct{}

	// Sockets counts open sockets of the pod's other users. An error is no evidence: the
	// proxy then stays.
	Sockets func() (int, error)

	// Connections counts Envoy's own connections from and to others, for [Options.OnZero].
	Connections func(context.Context) (int, error)
}

// Options say how long to stay without proof.
type Options struct {
	Least   time.Duration // stay so long at least (terminationDrainDuration)
	OnZero  bool          // leave when Envoy has no connection (EXIT_ON_ZERO_ACTIVE_CONNECTIONS)
	Minimum time.Duration // with OnZero: do not look earlier (MINIMUM_DRAIN_DURATION)
	Every   time.Duration // how often to look at sockets, which no event announces and costs milliseconds; default 200ms
}

// A Reason is why the proxy may leave.
type Reason string

// The reasons.
const (
	Proved      Reason = "all applications have ended"
	Silent      Reason = "the drain time is over and no other user of the pod has a socket"
	Idle        Reason = "no connection is left" // with OnZero
	Interrupted Reason = "it was told to stop waiting"
)

// Await returns when the proxy may leave, and why.
func Await(ctx context.Context, e Evidence, o Options) Reason {
	if o.Every <= 0 {
		o.Every = 200 * time.Millisecond
	}
	least := o.Least
	if o.OnZero {
		least = o.Minimum
	}
	over := time.NewTimer(least)
	defer over.Stop()
	var look <-chan time.Time
	for {
		select {
		case <-e.Ended:
			return Proved
		case <-ctx.Done():
			return Interrupted
		case <-over.C:
		case <-look:
		}
		if reason, done := quiet(ctx, e, o.OnZero); done {
			return reason
		}
		look = time.After(o.Every)
	}
}

// quiet says whether nothing speaks against leaving.
func quiet(ctx context.Context, e Evidence, onZero bool) (Reason, bool) {
	if onZero {
		n, err := e.Connections(ctx)
		return Idle, err == nil && n == 0
	}
	n, err := e.Sockets()
	return Silent, err == nil && n == 0
}
