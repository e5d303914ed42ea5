// Package identity gets a workload its certificate and keeps it fresh, as the agent.
//
// A [Keeper] makes the key, which never leaves the pod; asks a control plane for a
// certificate by Istio's IstioCertificateService (a [Client], one unary gRPC call over
// net/http); and hands each new one on to Envoy ([Options.OnCertificate]). It stores what
// Envoy has, so that a restart of the agent waits for nobody. What stands in the way is
// said as a [State].
//
// The old certificate stays until the new one is there, whatever happens to the control
// plane.
package identity

import "outrider.dev/internal/controlplane/spiffe"

// An ID is a workload's name.
type ID = spiffe.ID
