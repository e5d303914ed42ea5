// Package pemfile reads and writes certificates and keys as PEM, strictly: what does not
// belong into a file is an error, and no error has a byte of a key in it.
package pemfile

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Blocks.
const (
	Certificate = "CERTIFICATE"
	Request     = "CERTIFICATE REQUEST"
	Key         = "PRIVATE KEY" // PKCS 8
)

// Certificates reads PEM that holds certificates, at least one, and no other block.
func Certificates(raw []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(raw) > 0 {
		block, rest := pem.Decode(raw)
		if block == nil {
			break
		}
		if block.Type != Certificate {
			return nil, fmt.Errorf("a PEM block %q; only %s belongs here", block.Type, Certificate)
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

// Write is the reverse of [Certificates].
func Write(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: Certificate, Bytes: c.Raw})...)
	}
	return out
}

// PrivateKey reads a key: PKCS 8, or the older forms of EC and RSA.
func PrivateKey(raw []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("no key in it; write PEM")
	}
	var key any
	var err error
	switch block.Type {
	case Key:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a PEM block %q; write %s (PKCS 8)", block.Type, Key)
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the key cannot be read; write PKCS 8, ECDSA or RSA")
	}
	return signer, nil
}

// WriteKey is the reverse of [PrivateKey], as PKCS 8.
func WriteKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: Key, Bytes: der}), nil
}

// Fits says whether a certificate is for a key.
func Fits(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}
