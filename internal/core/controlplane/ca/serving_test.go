package ca

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Clients call a control plane by names or by addresses. If that name or address is not in the control
// plane's certificate, the handshake fails.
func TestServingIsCalledByNamesAndAddresses(t *testing.T) {
	a := must(NewAuthority(t.Context(), AuthorityOptions{Store: Directory(t.TempDir())}))
	names := []string{"outriderd.outrider-system.svc", "localhost", "127.0.0.1", "::1", "10.0.0.9"}
	s := must(a.NewServing(Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}, names, 0))
	cert := must(s.Certificate())
	if !slices.Equal(cert.Leaf.DNSNames, names[:2]) || len(cert.Leaf.IPAddresses) != 3 {
		t.Errorf("DNS names %q, addresses %v", cert.Leaf.DNSNames, cert.Leaf.IPAddresses)
	}
	l := must(tls.Listen("tcp", "127.0.0.1:0", s.TLS()))
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	for name, known := range map[string]bool{"127.0.0.1": true, "::1": true, "10.0.0.9": true, "localhost": true, "10.0.0.8": false, "example.org": false} {
		conn := must(net.Dial("tcp", l.Addr().String()))
		client := tls.Client(conn, &tls.Config{RootCAs: a.loaded().pool, ServerName: name})
		if err := client.HandshakeContext(t.Context()); (err == nil) != known {
			t.Errorf("called %s: %v", name, err)
		}
		client.Close()
	}
}

func TestNamesThatAreNone(t *testing.T) {
	a := must(NewAuthority(t.Context(), AuthorityOptions{Store: Directory(t.TempDir())}))
	id := Identity{TrustDomain: "cluster.local", Namespace: "o", ServiceAccount: "d"}
	for _, name := range []string{"", "https://10.0.0.1", "10.0.0.1:15017", "[::1]", "fe80::1%eth0", "a..b", "-a", "a b", "10.0.0.256", "10.0.0.0/8", strings.Repeat("a", 64), strings.Repeat("abc.", 70) + "a"} {
		if _, err := a.NewServing(id, []string{"cp", name}, 0); err == nil || !strings.Contains(err.Error(), "want a DNS name or an IP address") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"cp", "a.b-c.svc.cluster.local", "A.example", "*.example.org", "1.example", "::ffff:10.0.0.1", "192.0.2.1"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

// Connections share one configuration until the certificate or the roots change.
func TestConnectionsShareAConfiguration(t *testing.T) {
	a := authority(t, t.TempDir())
	base := must(a.NewServing(shop, []string{"localhost"}, 0)).TLS()
	current := func() *tls.Config {
		return must(base.GetConfigForClient(nil))
	}
	first := current()
	if current() != first {
		t.Error("a second connection has another configuration")
	}
	if err := replace(filepath.Join(a.o.Store.String(), "root-cert.pem"), append(a.RootsPEM(), authority(t, t.TempDir()).RootsPEM()...)); err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := current()
	if second == first || second.ClientCAs != a.loaded().pool {
		t.Error("after a new root a connection has the configuration without it")
	}
}

// A client's session is resumed by another replica and after a restart, unless the root of the client's
// certificate was removed.
func TestSessionsAreResumed(t *testing.T) {
	dir := t.TempDir()
	key := ecKey(t)
	signed := must(authority(t, dir).Sign(key.Public(), shop, 0))
	client := &tls.Config{
		ServerName: "localhost", RootCAs: authority(t, dir).loaded().pool, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{{Certificate: signed.served, PrivateKey: key}},
	}
	serving := func(a *Authority) *Serving { return must(a.NewServing(shop, []string{"localhost"}, 0)) }
	connect := func(s *Serving) (state tls.ConnectionState, err error) {
		l := must(tls.Listen("tcp", "127.0.0.1:0", s.TLS()))
		defer l.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			server := must(l.Accept()).(*tls.Conn)
			defer server.Close()
			err = server.HandshakeContext(t.Context())
			state = server.ConnectionState()
		}()
		c, failed := tls.Dial("tcp", l.Addr().String(), client)
		if failed == nil {
			c.Read(make([]byte, 1)) // reads the ticket; returns when the connection is closed
			c.Close()
		}
		<-ended
		return state, err
	}
	for i := range 3 {
		a := authority(t, dir)
		state, err := connect(serving(a))
		if err != nil || state.DidResume != (i > 0) {
			t.Fatalf("connection %d: resumed %v, %v", i, state.DidResume, err)
		}
		if id, err := a.identify(state.PeerCertificates, state.VerifiedChains); err != nil || id != shop {
			t.Errorf("connection %d: %v, %v; want the client's identity", i, id, err)
		}
	}
	a := authority(t, t.TempDir())
	client.RootCAs.AddCert(a.Roots()[0])
	control := serving(a)
	a.loaded().key = authority(t, dir).loaded().key // so that this authority can decrypt the tickets of the other one
	if state, _ := connect(control); state.DidResume || len(state.PeerCertificates) > 0 {
		t.Errorf("a client of a root that is gone has its identity; resumed %v", state.DidResume)
	}
}

// A ticket can be decrypted on the day on which it was created, and on the next day.
func TestKeysOfTicketsChangeEachDay(t *testing.T) {
	s := authority(t, t.TempDir()).loaded()
	day := time.Date(2026, 2, 28, 23, 59, 0, 0, time.UTC)
	var keys [3][][32]byte
	for i := range keys {
		keys[i] = must(s.ticketKeys(day.AddDate(0, 0, i)))
	}
	if keys[0][0] != keys[1][1] || keys[1][0] != keys[2][1] || slices.Contains(keys[2], keys[0][0]) {
		t.Errorf("keys of three days: %x", keys)
	}
	if other := must(authority(t, t.TempDir()).loaded().ticketKeys(day)); slices.Contains(other, keys[0][0]) {
		t.Error("another authority has the same keys")
	}
}
