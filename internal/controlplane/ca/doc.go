// Package ca is the control plane's side of who is who: an [Authority] signs
// certificates, a [Service] hands them out as Istio's IstioCertificateService does, and
// [Authority.AuthenticatePeer] says who is at the other end of a connection.
//
// A certificate names whom the caller proved to be, and nobody else. What the caller
// writes into its request is compared with that, never taken over. How a caller proves
// it is an [Authenticator]: a token that this control plane made ([Tokens]), a token that
// Kubernetes made ([Reviewed]), the one-time token of a host ([HostTokens]), or a
// certificate that it has ([MutualTLS]).
package ca

import "outrider.dev/internal/controlplane/spiffe"

// An Identity is a workload's name.
type Identity = spiffe.ID
