package envoy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/process"
	"outrider.dev/test/secretserver"
)

var (
	planeID = ca.Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}
	appID   = ca.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "app"}
)

// A mesh is a certificate authority, a control plane over mutual TLS, and the secrets of one Envoy.
type mesh struct {
	t         testing.TB
	authority *ca.Authority
	server    *httptest.Server
	requests  chan request
	secrets   *identity.SecretServer
	rejected  chan identity.Rejection
	options   Options // of the Envoy
}

// A request is one that the control plane has received; it stays open until the client ends it.
type request struct{ text, serial string }

// newMesh makes a mesh whose control plane has the certificate of id and receives a client's bytes
// with the delay late.
func newMesh(t testing.TB, id ca.Identity, late time.Duration) *mesh {
	t.Helper()
	authority, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, authority: authority, requests: make(chan request, 1000), rejected: make(chan identity.Rejection, 10)}
	chain, key, _ := m.issue(id)
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		client := r.TLS.PeerCertificates[0]
		m.requests <- request{fmt.Sprint(client.URIs[0], " ", r.TLS.ServerName, " ", r.URL.Path), client.SerialNumber.String()}
		<-r.Context().Done()
	}))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.RootsPEM())
	m.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, NextProtos: []string{"h2"}}
	m.server.EnableHTTP2 = true
	m.server.Listener = lateListener{m.server.Listener, late}
	m.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	m.server.StartTLS()
	t.Cleanup(func() { m.server.CloseClientConnections(); m.server.Close() })
	_, port, _ := net.SplitHostPort(m.server.Listener.Addr().String())
	socket := filepath.Join(t.TempDir(), "sds")
	m.secrets = secretserver.Serve(t, socket, func(r identity.Rejection) { m.rejected <- r })
	m.options = alone()
	m.options.Extra = nil
	m.options.ControlPlane = ControlPlane{Address: "localhost:" + port, Identity: []string{"spiffe://other", planeID.String()}, Secrets: socket}
	return m
}

func (m *mesh) issue(id ca.Identity) (chain, key []byte, serial string) {
	m.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := m.authority.Sign(private.Public(), id, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	if key, err = wire.MarshalKey(private); err != nil {
		m.t.Fatal(err)
	}
	return []byte(c.Chain[0]), key, c.Leaf.SerialNumber.String()
}

// provide gives Envoy all its secrets, and returns the certificate's serial number.
func (m *mesh) provide() (serial string) {
	m.t.Helper()
	chain, key, serial := m.issue(appID)
	m.secrets.Set(RootsName, identity.RootsSecret(m.authority.RootsPEM()))
	m.secrets.Set(SecretName, identity.CertificateSecret(chain, key))
	return serial
}

// receive waits for an event from Envoy.
func receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(process.Patience):
		t.Fatalf("not within %s: %s", process.Patience, what)
	}
	return v
}

func TestEnvoyAndTheControlPlaneAuthenticateEachOther(t *testing.T) {
	t.Run("the right one gets a request, with its name and our certificate", func(t *testing.T) {
		m := newMesh(t, planeID, 0)
		m.provide()
		start(t, m.options)
		want := appID.String() + " localhost /envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
		if got := receive(t, m.requests, "a request"); got.text != want {
			t.Errorf("request: %s\nwant     %s", got.text, want)
		}
	})
	t.Run("another workload of the same root is refused", func(t *testing.T) {
		m := newMesh(t, appID, 0)
		m.provide()
		r := start(t, m.options)
		process.Eventually(t, "a refused name", func() bool {
			s, _ := r.admin.Stats(context.Background(), `^cluster\.xds-grpc\.ssl\.fail_verify_san$`)
			return s["cluster.xds-grpc.ssl.fail_verify_san"] > 0
		})
		if len(m.requests) > 0 {
			t.Errorf("it got a request: %+v", <-m.requests)
		}
	})
}

// A lateListener accepts connections on which the client's bytes arrive late.
type lateListener struct {
	net.Listener
	by time.Duration
}

func (l lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return lateConn{c, l.by}, err
}

type lateConn struct {
	net.Conn
	by time.Duration
}

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.by)
	return n, err
}

// Envoy waits for a control plane that does not answer within a second (slow network, queue)
// instead of starting over.
func TestEnvoyWaitsForASlowControlPlane(t *testing.T) {
	m := newMesh(t, planeID, 1200*time.Millisecond)
	m.provide()
	start(t, m.options)
	receive(t, m.requests, "a request")
}

// Envoy starts without secrets; it uses the first ones and each new certificate without a restart.
func TestEnvoyTakesSecretsWhenTheyCome(t *testing.T) {
	m := newMesh(t, planeID, 0)
	r := start(t, m.options)
	process.Eventually(t, "an answer of /ready", func() bool {
		ready, _, err := r.admin.Ready(context.Background())
		if ready {
			t.Fatal("ready without its secrets")
		}
		return err == nil
	}, r)
	first := m.provide()
	if got := receive(t, m.requests, "a request"); got.serial != first {
		t.Errorf("certificate %s, want %s", got.serial, first)
	}
	second := m.provide()
	for shown := first; shown != second; { // Envoy may connect once more before it gets the second certificate
		m.server.CloseClientConnections()
		if shown = receive(t, m.requests, "a request after the connection was closed").serial; shown != first && shown != second {
			t.Fatalf("certificate %s, want %s or %s", shown, first, second)
		}
	}
}

// The agent learns of a secret that Envoy rejects and the reason, and Envoy uses the next one.
func TestEnvoyReportsARejectedSecret(t *testing.T) {
	m := newMesh(t, planeID, 0)
	start(t, m.options)
	chain, _, _ := m.issue(appID)
	_, other, _ := m.issue(appID)
	m.secrets.Set(RootsName, identity.RootsSecret(m.authority.RootsPEM()))
	m.secrets.Set(SecretName, identity.CertificateSecret(chain, other))
	// Either name is right: Envoy tries both together when it has the second.
	if r := receive(t, m.rejected, "the rejection of another certificate's key"); len(r.Names) != 1 || !strings.Contains(r.Reason, "KEY_VALUES_MISMATCH") || r.Kept {
		t.Errorf("%+v; want the workload's key refused", r)
	}
	m.provide()
	receive(t, m.requests, "a request with the next certificate")
}
