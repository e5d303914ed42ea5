package wire

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Types of PEM blocks.
const (
	CertificateBlock = "CERTIFICATE"
	RequestBlock     = "CERTIFICATE REQUEST"
	KeyBlock         = "PRIVATE KEY" // PKCS 8
)

// ParseCertificates parses PEM that contains at least one certificate and no other block.
func ParseCertificates(raw []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(raw) > 0 {
		block, rest := pem.Decode(raw)
		if block == nil {
			break
		}
		if block.Type != CertificateBlock {
			return nil, fmt.Errorf("a PEM block %q; only %s belongs here", block.Type, CertificateBlock)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(out)+1, err)
		}
		out, raw = append(out, cert), rest
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in it; write PEM")
	}
	return out, nil
}

// MarshalCertificates is the reverse of [ParseCertificates].
func MarshalCertificates(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: CertificateBlock, Bytes: c.Raw})...)
	}
	return out
}

// ParseKey parses a key: PKCS 8, or the older forms for EC and RSA.
func ParseKey(raw []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("no key in it; write PEM")
	}
	var key any
	var err error
	switch block.Type {
	case KeyBlock:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a PEM block %q; write %s (PKCS 8)", block.Type, KeyBlock)
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the key cannot be read; write PKCS 8, ECDSA or RSA")
	}
	return signer, nil
}

// MarshalKey is the reverse of [ParseKey]. It writes PKCS 8.
func MarshalKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: KeyBlock, Bytes: der}), nil
}

// Fits reports whether a certificate and a key belong together.
func Fits(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}
