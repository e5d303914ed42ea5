// Package dns is the pod's DNS proxy. It resolves names of the mesh one by one at the control
// plane, caches the answers, and forwards all other queries to the pod's own name servers.
//
// It needs no table of names, so it answers as soon as it listens. A name that the control plane
// does not resolve in time is forwarded too: without a control plane, a pod resolves names as it
// would without a mesh.
//
// Sources: RFC 1035 (messages), 6761 (localhost), 6891 (EDNS), 7766 (TCP), 8767 (stale answers).
package dns

import "time"

// Limits of the proxy.
const (
	maxQueries     = 256 // at a time
	maxConnections = 64  // over TCP, at a time
	maxMessage     = 65535
	maxQuery       = 4096 // bytes over UDP
	idle           = 10 * time.Second

	queryTimeout = time.Second            // wait for the control plane before a name is forwarded
	staleWait    = 100 * time.Millisecond // wait for the control plane before a stale answer is used
	firstPause   = 25 * time.Millisecond  // before a failed query is repeated; doubles each time
	recheck      = 2 * time.Second        // after a failure: no look-up waits for the control plane in this time
	maxStale     = time.Hour              // time for which an expired answer is usable
	staleTTL     = 5 * time.Second        // TTL of a stale answer

	serverTimeout = 2 * time.Second  // for one name server; resolv.conf may set less
	allTimeout    = 5 * time.Second  // for all name servers together (Istio's limit)
	failedLast    = 10 * time.Second // time for which a server that failed is tried last
)
