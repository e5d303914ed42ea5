package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"

	"outrider.dev/internal/base/wire"
)

// maxCSR is the maximum size of a request in bytes. Useful requests are many times smaller.
const maxCSR = 64 << 10

// parseCSR parses a certificate signing request and checks that its sender has the private key. An
// error is a [*Refusal].
func parseCSR(raw string) (*x509.CertificateRequest, error) {
	if len(raw) > maxCSR {
		return nil, refuse("the request for a certificate (CSR) has %d bytes; at most %d are read", len(raw), maxCSR)
	}
	block, rest := pem.Decode([]byte(raw))
	if block == nil || block.Type != wire.RequestBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, refuse("the request for a certificate (CSR) is not one PEM block %s", wire.RequestBlock)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, refuse("the request for a certificate (CSR) cannot be read: %v", err)
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, refuse("the request for a certificate (CSR) is not signed by its own key: %v", err)
	}
	return csr, nil
}

// checkKey refuses keys that are weak or expensive.
func checkKey(public crypto.PublicKey) error {
	switch key := public.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < 2048 || n > 4096 {
			return refuse("the request is for an RSA key of %d bits; use 2048 to 4096", n)
		}
	case *ecdsa.PublicKey:
		if n := key.Curve.Params().BitSize; n < 256 {
			return refuse("the request is for an ECDSA key of %d bits; use P-256 or more", n)
		}
	case ed25519.PublicKey:
	default:
		return refuse("the request is for an unsupported kind of key; use ECDSA P-256")
	}
	return nil
}

// checkNames returns a [*Refusal] if a request contains any name other than id. The certificate would contain
// only id anyway, but the sender must learn that it does not get what it requested.
func checkNames(csr *x509.CertificateRequest, id Identity) error {
	for _, uri := range csr.URIs {
		if uri.String() != id.String() {
			return refuse("the request names %q; its sender is %s", uri, id)
		}
	}
	if n := len(csr.DNSNames) + len(csr.IPAddresses) + len(csr.EmailAddresses); n > 0 {
		return refuse("the request has %d names that are no SPIFFE identity; its sender is %s", n, id)
	}
	return nil
}
