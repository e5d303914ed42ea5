// Package ca is the control plane's certificate authority: an [Authority] signs
// certificates, a [Service] hands them out as Istio's IstioCertificateService does, and
// [Authority.AuthenticatePeer] returns the identity of the peer of a connection.
//
// A certificate holds the identity that the caller has proved. What the caller writes into
// its request is compared with that identity and never copied. The proof is checked by an
// [Authenticator]: a token of this control plane ([Tokens]), a token of Kubernetes
// ([Reviewed]), the one-time token of a host ([HostTokens]), or a certificate that the
// caller already has ([MutualTLS]).
package ca
