package envoy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/agent/identity"
	"outrider.dev/test/secretserver"
)

// An authority signs the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) issue(t testing.TB, uri string) (chain, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(2), URIs: []*url.URL{u}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// controlPlane answers as who, and says which client asked for which method.
func controlPlane(t testing.TB, ca authority, who string) (address string, asked chan string) {
	t.Helper()
	chain, key := ca.issue(t, who)
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	asked = make(chan string, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.TLS.PeerCertificates[0].URIs[0], " ", r.TLS.ServerName, " ", r.URL.Path)
		<-r.Context().Done()
	}))
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, NextProtos: []string{"h2"}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().String(), asked
}

const planeID, appID = "spiffe://cluster.local/ns/outrider-system/sa/outriderd", "spiffe://cluster.local/ns/shop/sa/app"

// over is an Envoy that asks a control plane, which is who, and where it has its secrets
// from.
func over(t testing.TB, ca authority, who string) (o Options, secrets *identity.SecretServer, asked chan string) {
	t.Helper()
	o = alone()
	o.Extra = nil
	address, asked := controlPlane(t, ca, who)
	socket := filepath.Join(t.TempDir(), "sds")
	o.ControlPlane = ControlPlane{Addresses: []string{address}, SNI: "outriderd.local", Identity: []string{"spiffe://other", planeID}, Secrets: socket}
	return o, secretserver.Serve(t, socket, nil), asked
}

// give gives an Envoy all of its secrets.
func give(t testing.TB, ca authority, to *identity.SecretServer) {
	t.Helper()
	chain, key := ca.issue(t, appID)
	to.Set(RootsName, identity.RootsSecret(ca.pem))
	to.Set(SecretName, identity.CertificateSecret(chain, key))
}

func TestControlPlaneAndProxyKnowOneAnother(t *testing.T) {
	ca := newAuthority(t)
	setup := func(who string) (*running, chan string) {
		o, secrets, asked := over(t, ca, who)
		give(t, ca, secrets)
		return start(t, o), asked
	}
	t.Run("the right one is asked, by name and with our certificate", func(t *testing.T) {
		_, asked := setup(planeID)
		want := appID + " outriderd.local /envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("asked: %s\nwant   %s", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Error("no request")
		}
	})
	t.Run("another workload of the same root is refused", func(t *testing.T) {
		r, asked := setup(appID)
		eventually(t, "a refused name", func() bool {
			s, _ := r.admin.Stats(context.Background(), `^cluster\.xds-grpc\.ssl\.fail_verify_san$`)
			return s["cluster.xds-grpc.ssl.fail_verify_san"] > 0
		})
		if len(asked) > 0 {
			t.Errorf("asked all the same: %s", <-asked)
		}
	})
}

func TestACertificateMayComeLater(t *testing.T) {
	ca := newAuthority(t)
	o, secrets, asked := over(t, ca, planeID)
	r := start(t, o)
	eventually(t, "an answer of /ready", func() bool {
		ready, _, err := r.admin.Ready(context.Background())
		if ready {
			t.Fatal("ready without its secrets")
		}
		return err == nil
	})
	give(t, ca, secrets)
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("Envoy did not take the secrets")
	}
}

// That Envoy cannot use a secret, and why, reaches the agent; and the next one reaches Envoy.
func TestEnvoySaysWhichSecretItRefuses(t *testing.T) {
	ca := newAuthority(t)
	o, _, asked := over(t, ca, planeID)
	o.ControlPlane.Secrets = filepath.Join(t.TempDir(), "sds")
	rejected := make(chan identity.Rejection, 10)
	secrets := secretserver.Serve(t, o.ControlPlane.Secrets, func(r identity.Rejection) { rejected <- r })
	start(t, o)
	chain, _ := ca.issue(t, appID)
	_, other := ca.issue(t, appID)
	secrets.Set(RootsName, identity.RootsSecret(ca.pem))
	secrets.Set(SecretName, identity.CertificateSecret(chain, other))
	select {
	case r := <-rejected:
		// Whichever of the two came last: Envoy tries them together.
		if len(r.Names) != 1 || !strings.Contains(r.Reason, "KEY_VALUES_MISMATCH") || r.Kept {
			t.Errorf("%+v; want the workload's key refused", r)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Envoy takes another's key")
	}
	give(t, ca, secrets)
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("Envoy did not take the next one")
	}
}

// BenchmarkStartToControlPlane is from exec to the first request to the control plane, by
// mutual TLS with secrets that were there before Envoy, or that come a time after its exec.
func BenchmarkStartToControlPlane(b *testing.B) {
	ca := newAuthority(b)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
		b.Run(after.String(), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				o, secrets, asked := over(b, ca, planeID)
				if after == 0 {
					give(b, ca, secrets)
				}
				r := start(b, o)
				if after > 0 {
					time.Sleep(after)
					give(b, ca, secrets)
				}
				<-asked
				all = append(all, time.Since(r.began))
			}
			slices.Sort(all)
			for at, d := range map[string]time.Duration{"min": all[0], "p50": all[len(all)/2], "max": all[len(all)-1]} {
				b.ReportMetric(float64(d.Microseconds())/1000, at+"-ms")
			}
		})
	}
}
