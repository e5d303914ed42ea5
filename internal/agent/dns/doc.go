// Package dns is the pod's DNS proxy: it answers for names of the mesh, which it asks the
// control plane for one by one and remembers, and passes everything else on to the pod's
// own name servers.
//
// There is no table of names that has to arrive first: the proxy answers from the moment
// it listens. What it cannot learn from the control plane in time it passes on, too, so
// that without a control plane a pod resolves as it would without a mesh.
//
// Sources: RFC 1035 (messages), 6761 (localhost), 6891 (EDNS), 7766 (TCP), 8767 (stale
// answers).
package dns

import "time"

// Limits of the proxy.
const (
	maxQuestions   = 256 // at a time
	maxConnections = 64  // over TCP, at a time
	maxMessage     = 65535
	maxQuery       = 4096 // over UDP
	idle           = 10 * time.Second

	patience   = time.Second            // for the control plane, before a name is passed on
	impatience = 100 * time.Millisecond // the same, where an old answer would do
	again      = 25 * time.Millisecond  // until the next query, and then twice as long each time
	recheck    = 2 * time.Second        // after a failure: no look-up waits for this long
	stale      = time.Hour              // how long an old answer does while the control plane does not answer
	staleTTL   = 5 * time.Second        // TTL of such an answer for the app
	one        = 2 * time.Second        // a name server may take; resolv.conf may say less
	all        = 5 * time.Second        // all of them together may take (Istio's)
	aside      = 10 * time.Second       // a server that failed is tried last for this long
)
