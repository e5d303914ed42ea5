package dns

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/agent/identity"
	"outrider.dev/internal/controlplane"
	server "outrider.dev/internal/controlplane/ca"
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

// A plane is a real outriderd with a folder.
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

// workload returns what asks the plane as one workload, with a certificate of its own.
func (p *plane) workload(t testing.TB, namespace string) *ControlPlane {
	t.Helper()
	tokens, err := server.NewTokens(p.state, "cluster.local", "")
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
	case <-time.After(30 * time.Second):
		s, _ := k.State()
		t.Fatalf("no certificate: %s", s)
	}
	c := &ControlPlane{Address: p.at.Discovery, TLS: k.TLS(p.at.Discovery)}
	t.Cleanup(c.Close)
	return c
}

func (r *rig) asks(t testing.TB, name string) string {
	t.Helper()
	return said(r.send(t, "udp", question(name, dnsmessage.TypeA, 0)))
}

func TestARealControlPlane(t *testing.T) {
	p := newPlane(t)
	own, other := newRig(t, p.workload(t, "shop").Resolve, 1), newRig(t, p.workload(t, "web").Resolve, 1)
	const secret = "secret.shop.svc.cluster.local."
	tests := map[string]struct {
		from       *rig
		name, want string
	}{
		"a service":                            {other, reviews + ".", "Success; " + reviews + ". A 10.96.0.1"},
		"by its short name":                    {own, "reviews.", "Success; reviews. CNAME " + reviews + ".; " + reviews + ". A 10.96.0.1"},
		"by a short name of another namespace": {other, "reviews.", "Success; reviews. A 203.0.113.1"},
		"one that is not exported, to its own": {own, secret, "Success; " + secret + " A 10.96.0.2"},
		"and to others":                        {other, secret, "Success; " + secret + " A 203.0.113.1"},
		"an external name":                     {own, "out.shop.svc.cluster.local.", "Success; out.shop.svc.cluster.local. CNAME db.example.com.; db.example.com. A 203.0.113.1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.from.asks(t, tt.name); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
}

func TestTheControlPlaneDiesAndComesBack(t *testing.T) {
	p := newPlane(t)
	r := newRig(t, p.workload(t, "shop").Resolve, 1)
	const want = "Success; " + reviews + ". A 10.96.0.1"
	if got := r.asks(t, reviews+"."); got != want {
		t.Fatalf("%s; want %s", got, want)
	}
	p.stop()
	r.cache.mu.Lock()
	for _, e := range r.cache.entries {
		e.until = time.Now() // its time is up
	}
	r.cache.mu.Unlock()
	for range 3 {
		if got := r.asks(t, reviews+"."); got != want {
			t.Errorf("while it is dead: %s; want the old answer", got)
		}
	}
	if got := r.asks(t, "new.shop.svc.cluster.local."); got != "Success; new.shop.svc.cluster.local. A 203.0.113.1" {
		t.Errorf("a name that was never asked for: %s; want the name server's", got)
	}
	if c := r.Counts(); c.Stale != 3 || c.Unanswered == 0 {
		t.Errorf("counts %+v; want 3 old answers", c)
	}
	put(t, filepath.Join(p.folder, "shop.yaml"), strings.Replace(manifests, "10.96.0.1,", "10.96.0.77,", 1))
	p.start(t, p.at.Discovery)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got := r.asks(t, reviews+".")
		if got == "Success; "+reviews+". A 10.96.0.77" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after it came back: %s; want the new address", got)
		}
	}
}

func TestAWorkloadWithoutACertificateIsNotAnswered(t *testing.T) {
	p := newPlane(t)
	c := p.workload(t, "shop")
	bare := c.TLS.Clone()
	bare.GetClientCertificate = nil
	stranger := &ControlPlane{Address: c.Address, TLS: bare}
	defer stranger.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if got, err := stranger.Resolve(ctx, []string{reviews}); err == nil || !strings.Contains(err.Error(), "gRPC status 16") {
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
		t.Errorf("%d connections for 20 questions, want 1", conns)
	}
	c.Close()
	if _, err := c.Resolve(t.Context(), []string{"a"}); err != nil || conns != 2 {
		t.Errorf("after the connection was left: %v, %d connections, want 2", err, conns)
	}
}

// TestTimes prints how long an answer takes; it asserts that there is one.
func TestTimes(t *testing.T) {
	p := newPlane(t)
	r := newRig(t, p.workload(t, "shop").Resolve, 1)
	const n = 100
	measure := func(what string, name func(i int) string) {
		conn, err := net.Dial("udp", r.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var took []time.Duration
		for i := range n {
			q, began := question(name(i), dnsmessage.TypeA, 0), time.Now()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			conn.Write(q)
			if _, err := receive(conn, "udp"); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%s, n=%d: min %v, median %v, 99th %v, max %v", what, n, took[0], took[n/2], took[n-2], took[n-1])
	}
	text := manifests
	for i := range n {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n", i, netip.AddrFrom4([4]byte{10, 97, 0, byte(i)}))
	}
	put(t, filepath.Join(p.folder, "shop.yaml"), text)
	for end := time.Now().Add(30 * time.Second); !strings.Contains(r.asks(t, fmt.Sprintf("s%d.shop.svc.", n-1)), "10.97.0."); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new services are never known")
		}
	}
	began := time.Now()
	fresh := p.workload(t, "shop")
	if _, err := fresh.Resolve(t.Context(), []string{"s1"}); err != nil {
		t.Fatal(err)
	}
	t.Logf("certificate, connection and first question: %v", time.Since(began))
	measure("first answer", func(i int) string { return fmt.Sprintf("s%d.shop.svc.cluster.local.", i) })
	measure("cached answer", func(i int) string { return fmt.Sprintf("s%d.shop.svc.cluster.local.", i) })
	measure("passed on, loopback", func(i int) string { return fmt.Sprintf("s%d.example.com.", i) })
}
