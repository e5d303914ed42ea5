package ca

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Clients call a control plane by names and by addresses; a name that is not in its
// certificate is an error of the handshake.
func TestServingIsCalledByNamesAndAddresses(t *testing.T) {
	a := must(NewAuthority(AuthorityOptions{Dir: t.TempDir()}))
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
		client := tls.Client(conn, &tls.Config{RootCAs: a.current.Load().pool, ServerName: name})
		if err := client.HandshakeContext(t.Context()); (err == nil) != known {
			t.Errorf("called %s: %v", name, err)
		}
		client.Close()
	}
}

func TestNamesThatAreNone(t *testing.T) {
	a := must(NewAuthority(AuthorityOptions{Dir: t.TempDir()}))
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

// Connections share a configuration until the certificate or the roots change.
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
	if err := replace(filepath.Join(a.o.Dir, "root-cert.pem"), append(a.RootsPEM(), authority(t, t.TempDir()).RootsPEM()...)); err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	second := current()
	if second == first || second.ClientCAs != a.current.Load().pool {
		t.Error("after a new root a connection has the configuration without it")
	}
}
