package agent

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

const istioCSRName = "cert-manager-istio-csr.cert-manager.svc"

// An issuer is a certificate authority, either a root or an intermediate.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
	root *issuer // nil for a root
}

func newIssuer(t *testing.T, name string, root *issuer) *issuer {
	t.Helper()
	form := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	out := &issuer{root: root}
	out.cert, out.key = sign(t, form, root, 24*time.Hour)
	return out
}

// sign makes a key, and signs a certificate for it. Without an issuer (by is nil), the certificate is self-signed.
func sign(t *testing.T, form *x509.Certificate, by *issuer, life time.Duration) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := signKey(form, key.Public(), cmp.Or(by, &issuer{cert: form, key: key}), life)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func signKey(form *x509.Certificate, key any, by *issuer, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	form.SerialNumber, form.NotBefore = serial, time.Now().Add(-time.Minute)
	form.NotAfter = time.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, form, by.cert, key, by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// servingFiles writes the files of the control plane's serving certificate as cert-manager does, with the
// intermediate in the chain.
func servingFiles(t *testing.T, dir string, by *issuer, names ...string) {
	t.Helper()
	cert, key := sign(t, &x509.Certificate{DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature}, by, time.Hour)
	pemKey, err := wire.MarshalKey(key)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	for name, content := range map[string][]byte{ // any order: outriderd waits until the files match each other
		"ca.crt": wire.MarshalCertificates(by.root.cert), "tls.key": pemKey, "tls.crt": wire.MarshalCertificates(cert, by.cert),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "."+name), content, 0o600)
		}
		if err == nil {
			err = os.Rename(filepath.Join(dir, "."+name), filepath.Join(dir, name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// istioCSR is a server of Istio's certificate API that behaves like cert-manager's istio-csr. It authenticates
// the caller by its token, and requires that the request contains exactly the caller's identity. It limits the
// lifetime to an hour (zero stays zero). Its answer is a list of the leaf, the intermediates, and a last entry
// with all roots.
type istioCSR struct {
	tokens map[string]string // token -> identity

	mu     sync.Mutex
	by     *issuer
	roots  []*x509.Certificate
	away   int // number of the next calls that fail with Unavailable
	asked  []wire.CertificateRequest
	signed []*x509.Certificate
}

func (s *istioCSR) serve(w *harness.World, address string) {
	t := w.T.(*testing.T)
	cert, key := sign(t, &x509.Certificate{DNSNames: []string{istioCSRName}}, s.by, time.Hour)
	creds := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw, s.by.cert.Raw}, PrivateKey: key}}})
	rpc := grpc.NewServer(grpc.Creds(creds))
	ca.Method[wire.CertificateRequest, wire.CertificateResponse]{
		Service: wire.CertificateService, Name: wire.CertificateMethod, Parse: wire.ParseCertificateRequest, Handle: s.create,
	}.Register(rpc)
	go rpc.Serve(harness.Listen(w, w.Node, 0, address))
	t.Cleanup(rpc.Stop)
}

func (s *istioCSR) create(ctx context.Context, in wire.CertificateRequest) (wire.CertificateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away > 0 {
		s.away--
		return wire.CertificateResponse{}, status.Error(codes.Unavailable, "the issuer is not ready")
	}
	refused := func(why string) (wire.CertificateResponse, error) {
		return wire.CertificateResponse{}, status.Error(codes.Unauthenticated, "request authenticate failure: "+why)
	}
	id := s.tokens[strings.TrimPrefix(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ""), "Bearer ")]
	block, _ := pem.Decode([]byte(in.CSR))
	if id == "" || block == nil {
		return refused("no token, or no request")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		return refused("the request is not signed by its key")
	}
	if len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses)+len(csr.Subject.CommonName) > 0 || len(csr.URIs) != 1 || csr.URIs[0].String() != id {
		return refused(fmt.Sprintf("%v != %s", csr.URIs, id))
	}
	leaf, err := signKey(&x509.Certificate{URIs: csr.URIs, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, csr.PublicKey, s.by, min(in.Life, time.Hour))
	if err != nil {
		return wire.CertificateResponse{}, status.Error(codes.Internal, err.Error())
	}
	s.asked, s.signed = append(s.asked, in), append(s.signed, leaf)
	return wire.CertificateResponse{Chain: []string{
		string(wire.MarshalCertificates(leaf)), string(wire.MarshalCertificates(s.by.cert)), string(wire.MarshalCertificates(s.roots...)),
	}}, nil
}

// Proxies get their certificates from istio-csr. outriderd signs no certificates, and verifies those of the
// proxies with the roots of istio-csr. When istio-csr replaces its root, proxies with certificates of the old
// root stay connected.
func TestCertificatesOfIstioCSR(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Manifest("strict", strict)
	old := newIssuer(t, "old intermediate", newIssuer(t, "old root", nil))
	files := filepath.Join(w.Dir, "tls")
	servingFiles(t, files, old, "outriderd", "outriderd.outrider-system.svc", harness.PlaneName)
	w.RootFile = filepath.Join(files, "ca.crt")
	csr := &istioCSR{tokens: map[string]string{}, by: old, roots: []*x509.Certificate{old.root.cert}, away: 2}
	const address = harness.PlaneAddress + ":6443"
	csr.serve(w, address)
	client, server := pair(w, func(c, s *harness.Pod) {
		for _, p := range []*harness.Pod{c, s} {
			csr.allow(t, p)
			p.Env = []string{"CA_ADDR=" + address, "ISTIOD_SAN=" + harness.PlaneName + "," + istioCSRName}
		}
	}, "--serving-certificate", "files:"+files, "--max-connection-age", "2s")
	served := func() error { return fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")() }
	if err := served(); err != nil {
		t.Error(err)
	}
	csr.mu.Lock()
	first := slices.Clone(csr.asked)
	csr.mu.Unlock()
	if len(first) < 2 || first[0].Life != 24*time.Hour {
		t.Errorf("%d certificates: %v; want one for each pod, for 24 hours", len(first), first)
	}
	if strings.Contains(w.Plane().Log(), `"certificate signed"`) {
		t.Error("outriderd signed a certificate")
	}
	w.Run("outriderd itself refuses to sign", func(t *testing.T) {
		p := w.Pod("other")
		a := p.Agent()
		defer a.Kill()
		a.Unready("certificate-missing", "has no certificate service: this control plane signs no certificates: another authority does")
	})
	w.Run("another token", func(t *testing.T) {
		p := w.Pod("stranger")
		p.Env = []string{"CA_ADDR=" + address, "ISTIOD_SAN=" + harness.PlaneName + "," + istioCSRName}
		a := p.Agent()
		defer a.Kill()
		a.Unready("identity-refused", "request authenticate failure")
	})

	// The authority replaces its root. outriderd publishes the old and the new root, and the pods receive both.
	next := newIssuer(t, "new intermediate", newIssuer(t, "new root", nil))
	servingFiles(t, files, next, "outriderd", "outriderd.outrider-system.svc", harness.PlaneName)
	both := filepath.Join(w.State(), "seen-roots", "root-cert.pem")
	process.Eventually(t, "both roots are published", func() bool {
		raw, _ := os.ReadFile(both)
		certs, err := wire.ParseCertificates(raw)
		return err == nil && slices.ContainsFunc(certs, old.root.cert.Equal) && slices.ContainsFunc(certs, next.root.cert.Equal)
	}, w.Plane())
	raw, err := os.ReadFile(both)
	if err == nil {
		err = os.WriteFile(w.Roots(), raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	csr.mu.Lock()
	csr.by, csr.roots = next, []*x509.Certificate{old.root.cert, next.root.cert}
	csr.mu.Unlock()
	third := w.Pod("third")
	csr.allow(t, third)
	third.Env = client.Pod.Env
	third.Agent().Ready()
	if err := fresh(third, "http://"+vip+"/", "server HTTP/1.1")(); err != nil {
		t.Errorf("a client of the new root calls a server of the old one: %v", err)
	}
	// Reconnections succeed with certificates of the old root.
	connections := func() int { return strings.Count(w.Plane().Log(), `"proxy connected"`) }
	before := connections()
	process.Eventually(t, "all proxies connect again", func() bool { return connections() > before+6 }, w.Plane(), client, server)
	if err := served(); err != nil {
		t.Errorf("client and server of the old root: %v", err)
	}
	for _, a := range []*harness.Agent{client, server} {
		if s, ok := a.Status(); !ok || !s.Ready {
			t.Errorf("%s: %v", a.Pod.Name, s)
		}
	}
}

func (s *istioCSR) allow(t *testing.T, p *harness.Pod) {
	t.Helper()
	token, err := os.ReadFile(p.Token)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[strings.TrimSpace(string(token))] = "spiffe://cluster.local/ns/" + harness.Namespace + "/sa/" + p.Name
}
