// Package identity gets a workload's certificate, renews it, and gives it to Envoy.
//
// A [Keeper] makes the key, which never leaves the pod. It requests a certificate through Istio's
// IstioCertificateService (a [Client]: one unary gRPC call over net/http), and passes each new one to
// [Options.OnCertificate]. Envoy gets it from a [SecretServer]. The Keeper also stores Envoy's current
// certificate, so that a restarted agent need not wait for the control plane. A [State] describes the
// certificate, and the reason if there is none.
//
// The old certificate stays in use until the new one has arrived, whatever happens to the control
// plane.
package identity

import "outrider.dev/internal/base/wire"

// An ID is a workload's name.
type ID = wire.WorkloadID
