package mesh

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// Numbers of TLS, by https://www.iana.org/assignments/tls-parameters and tls-extensiontype-values.
const (
	tls12, tls13   = 0x0303, 0x0304
	x25519         = 0x001d
	x25519MLKEM768 = 0x11ec

	extVersions, extKeyShare = 43, 51
)

// A wire is a pod without a proxy between two proxies. It copies the bytes of each connection, and keeps the first ones.
type wire struct {
	*pod
	delay atomic.Int64 // of each piece, in each direction, in ns
	mu    sync.Mutex
	calls []*call
}

// A call has the first bytes of one connection.
type call struct {
	mu               sync.Mutex
	request, respond bytes.Buffer
}

// wire makes a pod whose ports lead to a server. The mesh believes that the server is at the address of this pod.
func (w *world) wire(server *pod, ports ...uint16) *wire {
	w.t.Helper()
	out := &wire{pod: w.pod("wire-"+server.name, "")}
	out.spec.Addresses = nil
	nowhere, moved := out.spec, server.spec
	moved.Addresses = []netip.Addr{out.v4}
	w.source.set(&nowhere, &moved)
	for _, n := range ports {
		go accept(out.listen(n), func(c net.Conn) {
			to, err := out.dial(w.t.Context(), "tcp", fmt.Sprintf("%s:%d", server.v4, n))
			if err != nil {
				return
			}
			defer to.Close()
			k := &call{}
			out.mu.Lock()
			out.calls = append(out.calls[max(0, len(out.calls)-10):], k)
			out.mu.Unlock()
			back := make(chan struct{})
			go func() {
				defer close(back)
				out.copy(c, io.TeeReader(to, kept{&k.mu, &k.respond}))
				c.(*net.TCPConn).CloseWrite()
			}()
			out.copy(to, io.TeeReader(c, kept{&k.mu, &k.request}))
			to.(*net.TCPConn).CloseWrite()
			<-back
		})
	}
	return out
}

// copy copies pieces until from ends, each after the delay.
func (w *wire) copy(to io.Writer, from io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if d := time.Duration(w.delay.Load()); n > 0 && d > 0 {
			time.Sleep(d)
		}
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// A kept writer keeps the first 64 KiB.
type kept struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (k kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to.Write(b[:min(len(b), 64<<10-k.to.Len())])
	return len(b), nil
}

// last returns the bytes of the newest connection, in both directions.
func (w *wire) last() (request, respond []byte) {
	w.mu.Lock()
	k := w.calls[len(w.calls)-1]
	w.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.request.Bytes()), slices.Clone(k.respond.Bytes())
}

// extensions returns the extensions in the ClientHello or ServerHello with which bytes begin (RFC 8446, section 4.1).
func extensions(t *testing.T, b []byte) map[uint16][]byte {
	t.Helper()
	next := func(n int) []byte {
		if n > len(b) {
			t.Fatal("the hello ends early")
		}
		head := b[:n]
		b = b[n:]
		return head
	}
	number := func(bytes int) (n int) {
		for _, c := range next(bytes) {
			n = n<<8 | int(c)
		}
		return n
	}
	if kind := number(1); kind != 22 {
		t.Fatalf("the first record has type %d, want a handshake", kind)
	}
	next(2)
	b = next(number(2))
	client := number(1) == 1
	b = next(number(3))
	next(2 + 32)
	next(number(1))
	if client {
		next(number(2))
		next(number(1))
	} else {
		next(2 + 1)
	}
	b = next(number(2))
	out := map[uint16][]byte{}
	for len(b) > 0 {
		kind := uint16(number(2))
		out[kind] = next(number(2))
	}
	return out
}

// offered returns the versions and the groups of the key shares in a ClientHello. A version or a group without a
// meaning (RFC 8701) is left out.
func offered(t *testing.T, hello []byte) (versions, groups []uint16) {
	t.Helper()
	ext := extensions(t, hello)
	if list := ext[extVersions]; len(list) > 0 {
		for pair := range slices.Chunk(list[1:], 2) {
			versions = append(versions, binary.BigEndian.Uint16(pair))
		}
	}
	for list := ext[extKeyShare]; len(list) > 2; {
		groups = append(groups, binary.BigEndian.Uint16(list[2:]))
		list = list[4+int(binary.BigEndian.Uint16(list[4:])):]
	}
	grease := func(n uint16) bool { return n&0x0f0f == 0x0a0a }
	return slices.DeleteFunc(versions, grease), slices.DeleteFunc(groups, grease)
}

// chosen returns the version and the group in a ServerHello; the group is 0 for TLS 1.2.
func chosen(t *testing.T, hello []byte) (version, group uint16) {
	t.Helper()
	ext := extensions(t, hello)
	if v := ext[extVersions]; v == nil {
		return tls12, 0
	} else {
		return binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(ext[extKeyShare])
	}
}

// ofTLS12 is a part of a TLS context that ends at TLS 1.2.
const ofTLS12 = `"alpn_protocols": ["outrider"], "tls_params": {"tls_maximum_protocol_version": "TLSv1_2"}, `

// Two proxies use TLS 1.3 with a group that a quantum computer does not break, and show no identity to the network.
// With a proxy that ends at TLS 1.2, in either direction, they use that. No session is resumed: a client is not let in
// after the end of its certificate.
func TestTLSOnTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source.set(&mesh.PolicySpec{Name: "strict", Namespace: namespace, Mode: mesh.ModeStrict})
	client, server := w.pod("client", "client"), w.pod("server", "server")
	oldClient, oldServer := w.pod("old-client", "old-client"), w.pod("old-server", "old-server")
	oldServer.static = plain{to: "127.0.0.1:8080", common: ofTLS12}.config
	server.metadata = map[string]any{contract.MetadataRelay: "true"}
	for _, p := range []*pod{server, oldServer} {
		go echo(p.listen(8080), p.name)
		p.proxied()
	}
	go repeat(server.listen(6379), "server")
	toServer, toOld := w.wire(server, 8080), w.wire(oldServer, 8080)
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	w.service("old", "10.96.0.2", "old-server", port(8080, mesh.HTTP))
	oldClient.static = plain{to: toServer.v4.String() + ":8080", client: true, common: ofTLS12}.config
	client.proxied()
	oldClient.proxied()

	both := []uint16{tls13, tls12}
	hybrid := []uint16{x25519MLKEM768, x25519}
	tests := []struct {
		name, url        string
		from             *pod
		by               *wire
		versions, groups []uint16
		version, group   uint16
	}{
		{"both new", "http://10.96.0.1:8080/", client, toServer, both, hybrid, tls13, x25519MLKEM768},
		{"an old server", "http://10.96.0.2:8080/", client, toOld, both, hybrid, tls12, 0},
		{"an old client", "http://10.96.0.1:8080/", oldClient, toServer, nil, nil, tls12, 0},
	}
	for _, tt := range tests {
		if got := get(tt.from.client(), tt.url); !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: %s", tt.name, got)
			continue
		}
		request, respond := tt.by.last()
		versions, groups := offered(t, request)
		version, group := chosen(t, respond)
		if !slices.Equal(versions, tt.versions) || !slices.Equal(groups, tt.groups) {
			t.Errorf("%s: the client offers versions %#x and groups %#x, want %#x and %#x", tt.name, versions, groups, tt.versions, tt.groups)
		}
		if version != tt.version || group != tt.group {
			t.Errorf("%s: the server chooses version %#x and group %#x, want %#x and %#x", tt.name, version, group, tt.version, tt.group)
		}
		clear := bytes.Contains(request, []byte("spiffe://")) || bytes.Contains(respond, []byte("spiffe://"))
		if clear != (tt.version == tls12) {
			t.Errorf("%s: an identity goes in clear: %t", tt.name, clear)
		}
	}
	for _, newest := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := meshTLS(t, w.ca, "client")
		config.MaxVersion, config.ServerName, config.ClientSessionCache = newest, "server", tls.NewLRUClientSessionCache(1)
		for range 2 {
			c, err := toServer.dial(t.Context(), "tcp", server.v4.String()+":6379")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			secure := tls.Client(c, config)
			if got := exchange(secure, "PING"); got != "server PING" || secure.ConnectionState().DidResume {
				t.Errorf("a client up to %#x: %q, resumed: %t", newest, got, secure.ConnectionState().DidResume)
			}
			c.Close()
		}
	}
	const old = telemetry.OldTLSCaller + "spiffe://cluster.local/ns/shop/sa/client\"} 2"
	w.eventually(t, "the count of old clients", func() bool {
		raw, err := server.admin.Get(t.Context(), "/stats/prometheus", "")
		return err == nil && slices.Contains(strings.Split(string(raw), "\n"), old)
	})
}

// A mesh with TLS 1.3 alone refuses a client that ends at TLS 1.2, counts it, and tells it why.
func TestTLS13Alone(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, mesh.Config{MinTLS: mesh.TLS13})
	w.source.set(&mesh.PolicySpec{Name: "strict", Namespace: namespace, Mode: mesh.ModeStrict})
	server, plain := w.pod("server", "server"), w.pod("plain", "plain")
	go repeat(server.listen(6379), "server")
	w.service("db", "", "server", port(6379, mesh.TCP))
	server.proxied()
	for _, tt := range []struct {
		newest             uint16
		want               string
		errors, by12, by13 uint64
	}{
		{newest: tls.VersionTLS12, want: "remote error: tls: protocol version not supported", errors: 1},
		{newest: tls.VersionTLS13, want: "server PING", errors: 1, by13: 1},
	} {
		c, err := plain.dial(t.Context(), "tcp", server.v4.String()+":6379")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		config := meshTLS(t, w.ca, "client")
		config.MaxVersion = tt.newest
		if got := exchange(tls.Client(c, config), "PING"); got != tt.want {
			t.Errorf("a client up to %#x: %q, want %q", tt.newest, got, tt.want)
		}
		for counter, want := range map[string]uint64{"connection_error": tt.errors, "versions.TLSv1.2": tt.by12, "versions.TLSv1.3": tt.by13} { // any order: independent counters
			process.EventuallyEqual(t, fmt.Sprintf("%s of a client up to %#x", counter, tt.newest), want, func() uint64 {
				return server.stat(`listener\..*\.ssl\.` + regexp.QuoteMeta(counter))
			}, w.envoys...)
		}
	}
}
