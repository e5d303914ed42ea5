package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"

	"outrider.dev/internal/base/wire"
)

// A KeyKind is the algorithm and the size of a key.
type KeyKind string

// The kinds of keys.
const (
	P256    KeyKind = "P256" // the default
	P384    KeyKind = "P384"
	RSA2048 KeyKind = "RSA2048"
)

func newKey(kind KeyKind) (crypto.Signer, error) {
	switch kind {
	case P256, "":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case P384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case RSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return nil, fmt.Errorf("a key of kind %q; use %s, %s or %s", kind, P256, P384, RSA2048)
}

// newCSR returns a certificate request for id.
func newCSR(key crypto.Signer, id ID) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id.URL()}}, key)
	if err != nil {
		return nil, fmt.Errorf("writing the request for a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: wire.RequestBlock, Bytes: der}), nil
}

// isRoot reports whether a certificate is self-issued.
func isRoot(c *x509.Certificate) bool { return c.IsCA && bytes.Equal(c.RawSubject, c.RawIssuer) }

// union returns a, and then the certificates of b that are not in a.
func union(a, b []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	seen := map[string]bool{}
	for _, list := range [][]*x509.Certificate{a, b} {
		for _, c := range list {
			if !seen[string(c.Raw)] {
				seen[string(c.Raw)] = true
				out = append(out, c)
			}
		}
	}
	return out
}
