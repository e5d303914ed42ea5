package wire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
)

func selfSigned(t testing.TB, key crypto.Signer) *x509.Certificate {
	t.Helper()
	form := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestPEMSurvivesARoundTrip(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	written, err := MarshalKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		key  crypto.Signer
		text []byte
	}{
		"PKCS 8": {p256, written},
		"EC":     {p256, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ec})},
		"RSA":    {r, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(r)})},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := ParseKey(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			cert := selfSigned(t, tt.key)
			certs, err := ParseCertificates(append([]byte("a comment\n"), MarshalCertificates(cert, cert)...))
			if err != nil || len(certs) != 2 || !certs[1].Equal(cert) || !Fits(certs[0], key) {
				t.Errorf("read back: %d certificates, %v", len(certs), err)
			}
		})
	}
	if cert := selfSigned(t, p256); Fits(cert, r) {
		t.Error("a certificate fits another key")
	}
}

func TestKeysStayOutOfErrors(t *testing.T) {
	const secret = "c2VjcmV0c2VjcmV0"
	for _, kind := range []string{"PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY"} {
		_, err := ParseKey([]byte("-----BEGIN " + kind + "-----\n" + secret + "\n-----END " + kind + "-----\n"))
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func FuzzPEM(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	text, err := MarshalKey(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(MarshalCertificates(selfSigned(f, key)))
	f.Add(text)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if certs, err := ParseCertificates(raw); err == nil {
			if back, err := ParseCertificates(MarshalCertificates(certs...)); err != nil || len(back) != len(certs) {
				t.Errorf("written again: %d of %d, %v", len(back), len(certs), err)
			}
		}
		if key, err := ParseKey(raw); err == nil && key.Public() == nil {
			t.Error("a key without a public half")
		}
	})
}
