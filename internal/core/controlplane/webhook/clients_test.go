package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outrider.dev/internal/core/controlplane/ca"
)

// A signer signs client certificates.
type signer struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
	pem  []byte
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := signer{key: key, root: &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}}
	der, err := x509.CreateCertificate(rand.Reader, s.root, s.root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return s
}

func (s signer) client(t *testing.T, name string) []tls.Certificate {
	t.Helper()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, &s.key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: s.key}}
}

// If roots for client certificates are set, the handshake succeeds only with a certificate that has an
// accepted name. The file with the roots can be replaced without a restart.
func TestOnlyTheAPIServerIsLetIn(t *testing.T) {
	ours, other := newSigner(t), newSigner(t)
	file := filepath.Join(t.TempDir(), "clients.pem")
	write := func(text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("no certificate"))
	if _, err := NewClients(file, nil); err == nil {
		t.Error("a file without a certificate is accepted")
	}
	write(ours.pem)
	clients, err := NewClients(file, []string{"kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t, t.TempDir())
	serving, err := a.NewServing(ca.Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}, []string{"localhost"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Namespaces: enabled}).Server(serving.Certificate, clients)
	go s.ServeTLS(l, "", "")
	defer s.Close()
	try := func(with []tls.Certificate) bool {
		c := client(t, a.RootsPEM(), "http/1.1")
		c.Transport.(*http.Transport).TLSClientConfig.Certificates = with
		r, err := c.Post("https://"+l.Addr().String()+Path, "application/json", bytes.NewReader(reviewOf("u", "shop", podJSON(t, plain))))
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	}
	check := func(when string, with []tls.Certificate, want bool) {
		t.Helper()
		if got := try(with); got != want {
			t.Errorf("%s: let in: %t, want %t", when, got, want)
		}
	}
	check("no certificate", nil, false)
	check("of another root", other.client(t, "kube-apiserver"), false)
	check("another name", ours.client(t, "system:node:n1"), false)
	check("the API server", ours.client(t, "kube-apiserver"), true)
	write(other.pem)
	if err := clients.Reload(); err != nil {
		t.Fatal(err)
	}
	check("the root was exchanged", ours.client(t, "kube-apiserver"), false)
	check("of the next root", other.client(t, "kube-apiserver"), true)
}
