package contract

import "time"

// Timeouts and pauses of a proxy's connection to the control plane.
const (
	// ControlPlaneConnectTimeout covers TCP and TLS together. A control plane that has just started admits one
	// proxy after the other, and spends 2 ms of processor time on each. A proxy that gave up after a second would
	// rejoin the end of the queue. If 5,000 proxies connected to a control plane with two processors, nearly all
	// would do so again and again. The timeout also allows for slow networks: TCP and TLS take two round trips.
	ControlPlaneConnectTimeout = 10 * time.Second
	// ControlPlaneRetryBase and ControlPlaneRetryMax bound the pause after a failure, which grows from the
	// first value to the second; each pause is a random part of it. A thousand proxies may then come back
	// within a second. That is harmless, because a control plane admits them in order, and a proxy loses at
	// most a second once the control plane is back.
	ControlPlaneRetryBase = 100 * time.Millisecond
	ControlPlaneRetryMax  = time.Second
	// DefaultFirstUse is the time for which the control plane may be unreachable before the agent itself responds
	// to the first use of a service. A control plane restarts faster, and an application rarely waits longer. A
	// proxy without an agent cannot tell a slow control plane from a missing one, and waits for the same time for
	// its configuration.
	DefaultFirstUse = time.Second
	// LocalRetryBase is the first pause of Envoy's back-off towards the agent, which has just closed a
	// connection or is starting.
	LocalRetryBase = 10 * time.Millisecond
)
