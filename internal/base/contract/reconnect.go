package contract

import "time"

// How a proxy connects to the control plane, and connects again.
const (
	// ControlPlaneConnectTimeout is for TCP and TLS together. A control plane that has just
	// started admits one proxy after the other, and spends 2 ms of a processor on each: a proxy
	// that gives up after a second comes back to the end of the queue, and of 5,000 on two
	// processors nearly all would, again and again. It is also for slow networks: TCP and TLS
	// take two round trips.
	ControlPlaneConnectTimeout = 10 * time.Second
	// ControlPlaneRetryBase and ControlPlaneRetryMax are the pauses after a failure: from the
	// first value to the second, each a random part of it. That a thousand proxies then come
	// within a second is harmless, because a control plane admits them in order; a proxy
	// loses at most a second when the control plane is back.
	ControlPlaneRetryBase = 100 * time.Millisecond
	ControlPlaneRetryMax  = time.Second
	// DefaultFirstUse is how long the control plane may be away before the agent responds to the
	// first use of a service: it restarts in less, and an application rarely waits for longer. A
	// proxy without an agent, which cannot tell a slow control plane from one that is gone, waits
	// so long for its configuration.
	DefaultFirstUse = time.Second
	// LocalRetryBase is the first pause of Envoy's back-off towards the agent, which has just closed a
	// connection or starts.
	LocalRetryBase = 10 * time.Millisecond
)
