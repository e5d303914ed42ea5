// Package ca is the control plane's certificate authority: an [Authority] signs certificates, a
// [Service] issues them over Istio's IstioCertificateService, and [Authority.AuthenticatePeer] returns
// the identity of a connection's peer.
//
// A certificate contains the identity that the caller has proved. The content of the caller's request
// is compared with that identity and never copied. The proof is checked by an [Authenticator]: a token
// of this control plane ([Tokens]), a token of Kubernetes ([Reviewed]), the one-time token of a host
// ([HostTokens]), or a certificate that the caller already has ([MutualTLS]).
package ca
