package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An authority signs workloads' certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &key.PublicKey)
	return a
}

func (a *authority) sign(t testing.TB, c, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// issue writes the files of a workload.
func (a *authority) issue(t testing.TB, dir, namespace, account string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		URIs:         []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/" + account}},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	// Bytes are base64 in JSON, of protobuf as of Go.
	inline := func(pem []byte) any { return map[string]any{"inline_bytes": pem} }
	secrets := map[string]map[string]any{
		"workload": {"tls_certificate": map[string]any{"certificate_chain": inline(encode("CERTIFICATE", leaf.Raw)), "private_key": inline(encode("EC PRIVATE KEY", der))}},
		"roots":    {"validation_context": map[string]any{"trusted_ca": inline(encode("CERTIFICATE", a.cert.Raw))}},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, secret := range secrets {
		secret["@type"], secret["name"] = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", name
		raw, err := json.Marshal(map[string]any{"resources": []any{secret}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// server is a certificate of the application's own.
func (a *authority) server(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(3), DNSNames: []string{"app"}}, a.cert, &key.PublicKey)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}
