package mtls

import "outrider.dev/internal/core/mesh"

// Mutual reports whether proxies connect to a workload's port by mutual TLS. Both the clients and the
// server's own proxy use this rule.
//
//   - A permissive port on which the server speaks first is called in plain text, because its proxy
//     cannot distinguish a client that waits for the server from one whose TLS handshake is late.
//   - A permissive port that no service or policy declares is also called in plain text, because it may
//     be excluded from capture, as the proxy's own ports are.
func Mutual(w *mesh.Workload, number uint16) bool {
	if w == nil || !w.Proxied {
		return false
	}
	p, known := w.Port(number)
	switch p.TLS {
	case mesh.Disable:
		return false
	case mesh.Strict:
		return true
	}
	return known && p.Protocol != mesh.ServerFirst
}

// Identity returns a workload's SPIFFE ID.
func Identity(trustDomain string, w *mesh.Workload) string {
	return "spiffe://" + trustDomain + "/ns/" + w.Namespace + "/sa/" + w.ServiceAccount
}
