package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"outrider.dev/internal/base/wire"
)

// hosts are the hosts that a test declares.
type hosts map[[32]byte]Host

func (h hosts) HostByToken(sum [32]byte) (Host, bool) { host, ok := h[sum]; return host, ok }

func (h hosts) Has(host Host) bool {
	return slices.Contains(slices.Collect(maps.Values(h)), host)
}

func (h hosts) Any() bool { return len(h) > 0 }

// review answers as a TokenReview of the API server would.
type review struct{}

func (review) Review(_ context.Context, token string, _ []string) (Subject, error) {
	switch token {
	case "kubernetes-shop-app":
		return Subject{"shop", "app", "app-7d9"}, nil
	case "kubernetes-odd":
		return Subject{"a/b", "", "app-7d9"}, nil
	case "kubernetes-old":
		return Subject{}, &Refusal{"Kubernetes says that the token has expired"}
	case "kubernetes-down":
		return Subject{}, errors.New("dial tcp: secret detail")
	}
	return Subject{}, ErrOther
}

// A plane is a control plane with its service and server for tests.
type plane struct {
	authority *Authority
	tokens    *Tokens
	service   *Service
	serving   *Serving
	address   string
	log       *bytes.Buffer
	hosts     hosts
	mayRenew  error // result of the check whether a pod may renew without a token
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	dir := t.TempDir()
	p := &plane{tokens: tokens(t, dir), log: &bytes.Buffer{}, hosts: hosts{sha256.Sum256([]byte("host-secret")): {"shop", "vm-1", "app"}}}
	p.authority = must(NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir), Hosts: p.hosts}))
	p.service = &Service{
		Authority: p.authority,
		Authenticators: []Authenticator{
			p.tokens,
			HostTokens{TrustDomain: "cluster.local", Used: must(NewUsed(filepath.Join(dir, "used"))), Hosts: p.hosts},
			Reviewed{Reviewer: review{}, TrustDomain: "cluster.local"},
			MutualTLS{p.authority, func(Identity) error { return p.mayRenew }},
		},
		Log: slog.New(slog.NewTextHandler(p.log, nil)),
	}
	p.serving = must(p.authority.NewServing(Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}, ServingNames("outrider-system", "cluster.local"), 0))
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(p.serving.TLS())))
	p.service.Register(server)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	p.address = listener.Addr().String()
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return p
}

// request calls the service over grpc-go, with a token and a client certificate if they are not empty.
func (p *plane) request(t testing.TB, in wire.CertificateRequest, token string, own *tls.Certificate) ([]*x509.Certificate, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.authority.RootsPEM())
	config := &tls.Config{RootCAs: pool, ServerName: "istiod.outrider-system.svc"}
	if own != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	conn := must(grpc.NewClient(p.address, grpc.WithTransportCredentials(credentials.NewTLS(config))))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
	}
	request, response := &emptypb.Empty{}, &emptypb.Empty{}
	request.ProtoReflect().SetUnknown(in.Marshal())
	if err := conn.Invoke(ctx, wire.CertificatePath, request, response); err != nil {
		return nil, err
	}
	out := must(wire.ParseCertificateResponse(response.ProtoReflect().GetUnknown()))
	return certificates(t, out.Chain), nil
}

func csr(t testing.TB, key crypto.Signer, form x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &form, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: wire.RequestBlock, Bytes: der}))
}

func (p *plane) token(c Claim) string {
	return "Bearer " + must(p.tokens.Issue(c, time.Now()))
}

var shopClaim = Claim{Namespace: "shop", ServiceAccount: "app"}

func TestEachCredential(t *testing.T) {
	p := newPlane(t)
	key := ecKey(t)
	ownKey := ecKey(t)
	own := must(p.authority.Sign(ownKey.Public(), shop, time.Hour))
	withCert := &tls.Certificate{Certificate: own.served, PrivateKey: ownKey}
	tests := map[string]struct {
		token string
		own   *tls.Certificate
	}{
		"a token of ours":                         {p.token(shopClaim), nil},
		"the scheme in lower case":                {strings.Replace(p.token(shopClaim), "Bearer", "bearer", 1), nil},
		"a token of Kubernetes":                   {"Bearer kubernetes-shop-app", nil},
		"a host's token":                          {"Bearer host-secret", nil},
		"a host's token again, with the same key": {"Bearer host-secret", nil},
		"a certificate":                           {"", withCert},
		"a certificate and an expired token":      {"Bearer kubernetes-old", withCert},
		"a certificate while Kubernetes is down":  {"Bearer kubernetes-down", withCert},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chain, err := p.request(t, wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{URIs: []*url.URL{shop.URL()}}), Life: time.Hour}, tt.token, tt.own)
			if err != nil {
				t.Fatal(err)
			}
			id, err := IdentityOf(chain[0])
			if err != nil || id != shop || !key.PublicKey.Equal(chain[0].PublicKey) {
				t.Errorf("the certificate is for %v, %v", id, err)
			}
		})
	}
	for _, secret := range []string{"host-secret", "kubernetes-shop-app", "eyJ"} {
		if strings.Contains(p.log.String(), secret) {
			t.Errorf("the log has a secret:\n%s", p.log)
		}
	}
	if !strings.Contains(p.log.String(), "identity=spiffe://cluster.local/ns/shop/sa/app method=token") {
		t.Errorf("the log lacks the identity:\n%s", p.log)
	}
}

func TestEachRefusal(t *testing.T) {
	p := newPlane(t)
	key := ecKey(t)
	if _, err := p.request(t, wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{})}, "Bearer host-secret", nil); err != nil {
		t.Fatal(err) // the request uses the token, so that later uses are refused
	}
	other := shop
	other.Namespace = "bank"
	plain := csr(t, key, x509.CertificateRequest{})
	tampered := func() string {
		block, _ := pem.Decode([]byte(plain))
		block.Bytes[len(block.Bytes)-1] ^= 1
		return string(pem.EncodeToMemory(block))
	}()
	weakEC := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	bigRSA := must(rsa.GenerateKey(rand.Reader, 2048))
	if _, err := p.request(t, wire.CertificateRequest{CSR: csr(t, bigRSA, x509.CertificateRequest{})}, p.token(shopClaim), nil); err != nil {
		t.Errorf("an RSA key of 2048 bits: %v", err)
	}
	good := p.token(shopClaim)
	tests := map[string]struct {
		in    wire.CertificateRequest
		token string
		code  codes.Code
		want  string
	}{
		"no credential":                  {wire.CertificateRequest{CSR: plain}, "", codes.Unauthenticated, "neither a token nor a certificate"},
		"a token of an unknown kind":     {wire.CertificateRequest{CSR: plain}, "Bearer x", codes.Unauthenticated, "of a kind that this control plane does not know"},
		"another scheme":                 {wire.CertificateRequest{CSR: plain}, "Basic eDp5", codes.Unauthenticated, "not of the form: Bearer"},
		"no scheme":                      {wire.CertificateRequest{CSR: plain}, "abc", codes.Unauthenticated, "not of the form: Bearer"},
		"a token of another audience":    {wire.CertificateRequest{CSR: plain}, p.token(Claim{Namespace: "shop", ServiceAccount: "app", Audiences: []string{"vault"}}), codes.Unauthenticated, `for audience ["vault"]`},
		"a token that Kubernetes denies": {wire.CertificateRequest{CSR: plain}, "Bearer kubernetes-old", codes.Unauthenticated, "Kubernetes says"},
		"an invalid name":                {wire.CertificateRequest{CSR: plain}, "Bearer kubernetes-odd", codes.Unauthenticated, `namespace "a/b"`},
		"Kubernetes does not answer":     {wire.CertificateRequest{CSR: plain}, "Bearer kubernetes-down", codes.Unavailable, "cannot check identities now"},
		"a host's token that was used":   {wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, "Bearer host-secret", codes.Unauthenticated, "host shop/vm-1 was used already"},
		"another identity":               {wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{URIs: []*url.URL{other.URL()}})}, good, codes.PermissionDenied, `names "spiffe://cluster.local/ns/bank/sa/app"; its sender is spiffe://cluster.local/ns/shop/sa/app`},
		"its own and another":            {wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{URIs: []*url.URL{shop.URL(), other.URL()}})}, good, codes.PermissionDenied, "names"},
		"a DNS name":                     {wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{DNSNames: []string{"outriderd"}})}, good, codes.PermissionDenied, "no SPIFFE identity"},
		"an address":                     {wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{IPAddresses: []net.IP{{1, 2, 3, 4}}})}, good, codes.PermissionDenied, "no SPIFFE identity"},
		"impersonation":                  {wire.CertificateRequest{CSR: plain, Metadata: map[string]string{wire.Impersonated: other.String()}}, good, codes.PermissionDenied, "metadata ImpersonatedIdentity"},
		"another signer":                 {wire.CertificateRequest{CSR: plain, Metadata: map[string]string{wire.CertSigner: "x"}}, good, codes.PermissionDenied, "metadata CertSigner"},
		"no CSR":                         {wire.CertificateRequest{}, good, codes.InvalidArgument, "not one PEM block"},
		"two CSRs":                       {wire.CertificateRequest{CSR: plain + plain}, good, codes.InvalidArgument, "not one PEM block"},
		"a CSR of garbage":               {wire.CertificateRequest{CSR: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"}, good, codes.InvalidArgument, "cannot be read"},
		"a CSR of another's key":         {wire.CertificateRequest{CSR: tampered}, good, codes.InvalidArgument, "not signed by its own key"},
		"a CSR that is too long":         {wire.CertificateRequest{CSR: strings.Repeat("x", maxCSR+1)}, good, codes.InvalidArgument, "at most 65536"},
		"a weak key":                     {wire.CertificateRequest{CSR: csr(t, weakEC, x509.CertificateRequest{})}, good, codes.InvalidArgument, "224 bits"},
		"a negative life":                {wire.CertificateRequest{CSR: plain, Life: -time.Hour}, good, codes.InvalidArgument, "validity_duration"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := p.request(t, tt.in, tt.token, nil)
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.want) {
				t.Errorf("%v\nwant %s with %q", err, tt.code, tt.want)
			}
		})
	}
	if !strings.Contains(p.log.String(), "secret detail") || strings.Contains(p.log.String(), "host-secret") {
		t.Errorf("want the log to have the cause, and no token:\n%s", p.log)
	}
}

// In a cluster each certificate needs a token, because the pod that has a certificate may be gone. If a token
// cannot be checked now, the error is not a refusal, so that the agent tries again.
func TestAPodsCertificateDoesNotRenewItselfInACluster(t *testing.T) {
	p := newPlane(t)
	p.mayRenew = ErrTokenNeeded
	key := ecKey(t)
	own := must(p.authority.Sign(key.Public(), shop, time.Hour))
	withCert := &tls.Certificate{Certificate: own.served, PrivateKey: key}
	for token, want := range map[string]struct {
		code  codes.Code
		words string
	}{
		"":                           {codes.Unauthenticated, "send the pod's token"},
		"Bearer kubernetes-old":      {codes.Unauthenticated, "the token has expired; in a cluster"},
		"Bearer kubernetes-down":     {codes.Unavailable, "try again"},
		"Bearer kubernetes-shop-app": {codes.OK, ""},
		p.token(shopClaim):           {codes.OK, ""},
	} {
		_, err := p.request(t, wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, token, withCert)
		if status.Code(err) != want.code || !strings.Contains(fmt.Sprint(err), want.words) {
			t.Errorf("certificate and token %q: %v; want %s %q", token, err, want.code, want.words)
		}
	}
	if _, err := (MutualTLS{Authority: p.authority}).Authenticate(t.Context(), Credentials{Chain: []*x509.Certificate{own.Leaf}}); !errors.Is(err, ErrTokenNeeded) {
		t.Errorf("without a rule: %v; want %v", err, ErrTokenNeeded)
	}
	host := must(p.request(t, wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{})}, "Bearer host-secret", nil))
	if _, err := p.request(t, wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, "", &tls.Certificate{Certificate: [][]byte{host[0].Raw}, PrivateKey: key}); err != nil {
		t.Errorf("a host, which has no other token: %v", err)
	}
	if !strings.Contains(p.log.String(), `method="token review" pod=app-7d9`) {
		t.Errorf("the log lacks the pod:\n%s", p.log)
	}
}

// Tests of package controlplane cover the renewals and streams of hosts that are removed.
func TestAHostsCertificate(t *testing.T) {
	p := newPlane(t)
	key := ecKey(t)
	host := must(p.request(t, wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{})}, "Bearer host-secret", nil))
	own := &tls.Certificate{Certificate: [][]byte{host[0].Raw}, PrivateKey: key}
	renewed := must(p.request(t, wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, "", own))
	if got, ok := hostOf(renewed[0], shop); !ok || got != (Host{"shop", "vm-1", "app"}) {
		t.Errorf("the renewed certificate is of host %v, %v", got, ok)
	}
	pod := must(p.request(t, wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, p.token(shopClaim), nil))
	if got := pod[0].Subject.String(); got != "" {
		t.Errorf("a pod's subject is %s", got)
	}
	if _, err := authority(t, p.authority.o.Store.String()).Identify(renewed); err == nil {
		t.Error("a control plane without hosts accepts the certificate of one")
	}
	clear(p.hosts)
	if _, err := p.authority.Identify(renewed); err == nil || !strings.Contains(err.Error(), "host shop/vm-1 of this certificate is not in the mesh") {
		t.Errorf("the certificate of a host that was removed: %v", err)
	}
	p.hosts[sha256.Sum256([]byte("next-secret"))] = Host{"shop", "vm-2", "app"}
	if _, err := p.request(t, wire.CertificateRequest{CSR: csr(t, ecKey(t), x509.CertificateRequest{})}, "Bearer next-secret", own); err != nil {
		t.Errorf("with its old certificate and a new token: %v", err)
	}
}

func TestACertificateOfAnotherMeshEndsTheHandshake(t *testing.T) {
	p := newPlane(t)
	dir := t.TempDir()
	move(t, p.authority.o.Store.String(), dir, "ca-cert.pem", "ca-key.pem", "root-cert.pem")
	elsewhere := must(NewAuthority(t.Context(), AuthorityOptions{Store: Directory(dir), TrustDomain: "other.example"}))
	for name, a := range map[string]*Authority{"another trust domain": elsewhere, "another root": authority(t, t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			key := ecKey(t)
			id := shop
			id.TrustDomain = a.TrustDomain()
			c := must(a.Sign(key.Public(), id, 0))
			_, err := p.request(t, wire.CertificateRequest{CSR: csr(t, key, x509.CertificateRequest{})}, p.token(shopClaim), &tls.Certificate{Certificate: c.served, PrivateKey: key})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the call ended with %v, want no connection", err)
			}
		})
	}
}

func TestTheControlPlanesOwnCertificateRenewsItself(t *testing.T) {
	a := authority(t, t.TempDir())
	id := Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}
	s := must(a.NewServing(id, ServingNames("outrider-system", "cluster.local"), 0))
	first := must(s.Certificate())
	for _, name := range []string{"outriderd", "outriderd.outrider-system.svc", "istiod.outrider-system.svc", "istiod.outrider-system.svc.cluster.local"} {
		if err := first.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if got := must(IdentityOf(first.Leaf)); got != id {
		t.Errorf("it names %v", got)
	}
	if again := must(s.Certificate()); again != first {
		t.Error("renewed before half its life")
	}
	s.renew = time.Now().Add(-time.Second)
	second := must(s.Certificate())
	if second == first || second.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 {
		t.Error("not renewed at half its life")
	}
	newer := authority(t, t.TempDir())
	move(t, newer.o.Store.String(), a.o.Store.String(), "ca-cert.pem", "ca-key.pem", "root-cert.pem")
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if third := must(s.Certificate()); third.Leaf.CheckSignatureFrom(newer.Roots()[0]) != nil {
		t.Error("not signed by the authority's new key")
	}
	broken := *a.loaded()
	broken.cert = &x509.Certificate{NotAfter: time.Now().Add(-time.Hour)} // it has expired
	a.current.Set(&broken)
	if _, err := s.Certificate(); err != nil {
		t.Errorf("the old one is still valid, and not served: %v", err)
	}
	s.expiry = time.Now().Add(-time.Second)
	if _, err := s.Certificate(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("without a valid one: %v", err)
	}
}

// A peer is verified at each call: its connection may have been opened before a rotation, and may outlive its
// certificate.
func TestAPeerIsVerifiedAtEachCall(t *testing.T) {
	a := authority(t, t.TempDir())
	late := time.Duration(0)
	a.now = func() time.Time { return time.Now().Add(late) }
	call := func(c *Certificate, want string) {
		t.Helper()
		state := tls.ConnectionState{}
		if c != nil {
			state.PeerCertificates = []*x509.Certificate{c.Leaf}
		}
		id, err := a.AuthenticatePeer(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}}))
		if want == "" && (err != nil || id != shop) || want != "" && (status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), want)) {
			t.Errorf("AuthenticatePeer = %v, %v; want %q", id, err, want)
		}
	}
	call(nil, "the client sent no certificate")
	first := sign(t, a, shop, time.Hour)
	call(first, "")
	newer := authority(t, t.TempDir())
	move(t, newer.o.Store.String(), a.o.Store.String(), "ca-cert.pem", "ca-key.pem", "root-cert.pem")
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	call(first, "not of this mesh")
	second := sign(t, a, shop, time.Hour)
	call(second, "")
	late = 2 * time.Hour
	call(second, "expired")
	if _, err := a.AuthenticatePeer(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call without a connection: %v", err)
	}
}

func FuzzCSR(f *testing.F) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	f.Add(csr(f, key, x509.CertificateRequest{URIs: []*url.URL{shop.URL()}}))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parseCSR(raw)
		var r *Refusal
		if err != nil {
			if !errors.As(err, &r) {
				t.Errorf("an error that is no refusal: %v", err)
			}
			return
		}
		if err := checkNames(got, shop); err == nil && len(got.URIs) > 0 && got.URIs[0].String() != shop.String() {
			t.Errorf("it names %s", got.URIs)
		}
	})
}
