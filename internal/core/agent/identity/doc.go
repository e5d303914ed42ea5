// Package identity gets a workload its certificate, renews it, and gives it to Envoy.
//
// A [Keeper] makes the key, which never leaves the pod; requests a certificate by Istio's
// IstioCertificateService (a [Client], one unary gRPC call over net/http); and hands each new
// one to Envoy ([Options.OnCertificate]), which gets it from a [SecretServer]. It stores
// what Envoy has, so that a restarted agent need not wait for the control plane. A [State]
// has what went wrong.
//
// The old certificate stays in use until the new one is there, whatever happens to the
// control plane.
package identity

import "outrider.dev/internal/base/wire"

// An ID is a workload's name.
type ID = wire.WorkloadID
