package dns

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane"
	server "outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/process"
)

const manifests = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: secret, namespace: shop, annotations: {networking.istio.io/exportTo: .}}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: shop}
spec: {type: ExternalName, externalName: db.example.com}
`

// A plane is an outriderd that serves a folder of manifests.
type plane struct {
	folder, state string
	at            controlplane.Addresses
	stop          func()
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	p := &plane{folder: t.TempDir(), state: t.TempDir()}
	put(t, filepath.Join(p.folder, "shop.yaml"), manifests)
	p.start(t, "127.0.0.1:0")
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *plane) start(t testing.TB, listen string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan controlplane.Addresses, 1), make(chan error, 1)
	go func() {
		done <- controlplane.Run(ctx, controlplane.Options{Folder: p.folder, State: p.state, Listen: listen, HTTP: "127.0.0.1:0",
			Ready: func(a controlplane.Addresses) { ready <- a }})
	}()
	ended := false
	p.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
	}
	select {
	case p.at = <-ready:
	case err := <-done:
		t.Fatalf("control plane: %v", err)
	}
}

// workload returns a client with its own workload certificate.
func (p *plane) workload(t testing.TB, namespace string) *ControlPlane {
	t.Helper()
	tokens, err := server.NewTokens(p.state, "cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Issue(server.Claim{Namespace: namespace, ServiceAccount: "app"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "token"), token)
	have := make(chan struct{}, 100)
	k, err := identity.NewKeeper(identity.Options{
		Identity: identity.ID{TrustDomain: "cluster.local", Namespace: namespace, ServiceAccount: "app"}, Dir: filepath.Join(dir, "certs"),
		Client: identity.Client{Address: p.at.Discovery, Identity: []string{"outriderd.outrider-system.svc"},
			TokenFile: filepath.Join(dir, "token"), RootFile: filepath.Join(p.state, "ca", "root-cert.pem")},
		OnState: func(s identity.State) {
			if s.Phase == identity.Have {
				have <- struct{}{}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case <-have:
	case <-time.After(time.Minute):
		s := k.State()
		t.Fatalf("no certificate: %s", s)
	}
	c := &ControlPlane{Address: p.at.Discovery, TLS: k.TLS(p.at.Discovery)}
	t.Cleanup(c.Close)
	return c
}

// address resolves a name to IPv4 addresses.
func (r *rig) address(t testing.TB, name string) string {
	t.Helper()
	return text(r.send(t, "udp", question(name, dnsmessage.TypeA, 0)))
}

func TestControlPlane(t *testing.T) {
	p := newPlane(t)
	own, other := newRig(t, p.workload(t, "shop").Resolve, 1), newRig(t, p.workload(t, "web").Resolve, 1)
	const secret = "secret.shop.svc.cluster.local."
	tests := map[string]struct {
		from       *rig
		name, want string
	}{
		"a service":                         {other, reviews + ".", "Success; " + reviews + ". A 10.96.0.1"},
		"a short name":                      {own, "reviews.", "Success; reviews. CNAME " + reviews + ".; " + reviews + ". A 10.96.0.1"},
		"a short name of another namespace": {other, "reviews.", "Success; reviews. A 203.0.113.1"},
		"a service that is not exported, in its namespace": {own, secret, "Success; " + secret + " A 10.96.0.2"},
		"and in another namespace":                         {other, secret, "Success; " + secret + " A 203.0.113.1"},
		"an external name":                                 {own, "out.shop.svc.cluster.local.", "Success; out.shop.svc.cluster.local. CNAME db.example.com.; db.example.com. A 203.0.113.1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.from.address(t, tt.name); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
}

func TestControlPlaneRestarts(t *testing.T) {
	p := newPlane(t)
	r := newRig(t, p.workload(t, "shop").Resolve, 1)
	const want = "Success; " + reviews + ". A 10.96.0.1"
	if got := r.address(t, reviews+"."); got != want {
		t.Fatalf("%s; want %s", got, want)
	}
	p.stop()
	r.cache.mu.Lock()
	for _, e := range r.cache.entries {
		e.expires = time.Now()
	}
	r.cache.mu.Unlock()
	for range 3 {
		if got := r.address(t, reviews+"."); got != want {
			t.Errorf("without a control plane: %s; want the stale answer", got)
		}
	}
	if got := r.address(t, "new.shop.svc.cluster.local."); got != "Success; new.shop.svc.cluster.local. A 203.0.113.1" {
		t.Errorf("a name that is not in the cache: %s; want the name server's answer", got)
	}
	if c := r.Counts(); c.Stale != 3 || c.Unanswered == 0 {
		t.Errorf("counts %+v; want 3 stale answers", c)
	}
	put(t, filepath.Join(p.folder, "shop.yaml"), strings.Replace(manifests, "10.96.0.1,", "10.96.0.77,", 1))
	p.start(t, p.at.Discovery)
	process.Retry(t, func() error {
		if got := r.address(t, reviews+"."); got != "Success; "+reviews+". A 10.96.0.77" {
			return fmt.Errorf("after the restart: %s; want the new address", got)
		}
		return nil
	})
}

func TestAWorkloadWithoutACertificateIsRefused(t *testing.T) {
	p := newPlane(t)
	c := p.workload(t, "shop")
	anonymous := c.TLS.Clone()
	anonymous.GetClientCertificate = nil
	client := &ControlPlane{Address: c.Address, TLS: anonymous}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if got, err := client.Resolve(ctx, []string{reviews}); err == nil || !strings.Contains(err.Error(), "gRPC status 16") {
		t.Errorf("without a certificate: %+v, %v; want it refused", got, err)
	}
}

func TestOneConnectionIsKept(t *testing.T) {
	p := newPlane(t)
	c := p.workload(t, "shop")
	conns, verify := 0, c.TLS.VerifyConnection
	c.TLS.VerifyConnection = func(s tls.ConnectionState) error {
		conns++
		return verify(s)
	}
	for i := range 20 {
		if _, err := c.Resolve(t.Context(), []string{fmt.Sprintf("a%d.shop", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if conns != 1 {
		t.Errorf("%d connections for 20 calls, want 1", conns)
	}
	c.Close()
	if _, err := c.Resolve(t.Context(), []string{"a"}); err != nil || conns != 2 {
		t.Errorf("after Close: %v, %d connections, want 2", err, conns)
	}
}
