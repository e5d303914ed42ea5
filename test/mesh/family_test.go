package mesh

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/mesh"
)

// An application may listen on one family, and a client may have one only: a connection to a
// service by a family goes to an endpoint of that family, each time. With full push, where
// hosts are found by name, this holds for bytes.
func TestFamilies(t *testing.T) {
	w := newWorld(t)
	server := w.pod("server", "server")
	const bytes4, requests4, bytes6, requests6 = 9000, 9001, 9002, 9003
	w.service("dual", "10.96.0.2 fd96::2", "server", port(bytes4, mesh.TCP), port(requests4, mesh.HTTP), port(bytes6, mesh.TCP), port(requests6, mesh.HTTP))
	w.service("routed", "10.96.0.3 fd96::3", "server", port(requests4, mesh.HTTP), port(requests6, mesh.HTTP))
	for _, number := range []uint16{requests4, requests6} {
		w.route(fmt.Sprintf("r%d", number), "routed", number)
	}
	both, full := w.pod("both", "both").proxied(), w.pod("full", "full")
	full.metadata = map[string]any{"OUTRIDER_PUSH": "full"}
	full.proxied()
	four := w.pod("four", "four")
	four.IP("addr", "del", netip.PrefixFrom(four.v6, 64).String(), "dev", "eth0")
	alone := four.spec
	alone.Addresses = []netip.Addr{four.v4}
	four.spec = alone
	four.proxied()
	server.proxied()
	go repeat(server.listenBy("tcp4", bytes4), "server")
	go echo(server.listenBy("tcp4", requests4), "server")
	go repeat(server.listenBy("tcp6", bytes6), "server")
	go echo(server.listenBy("tcp6", requests6), "server")
	bytes := func(p *pod, to string) string { return p.send(to, "PING") }
	requests := func(p *pod, to string) string { return get(p.client(), "http://"+to+"/") }
	tests := map[string]struct {
		from *pod
		call func(*pod, string) string
		to   string
		want string
	}{
		"bytes by IPv4":                         {both, bytes, "10.96.0.2:9000", "server PING"},
		"bytes by IPv6":                         {both, bytes, "[fd96::2]:9002", "server PING"},
		"requests by IPv4":                      {both, requests, "10.96.0.2:9001", "200 server"},
		"requests by IPv6":                      {both, requests, "[fd96::2]:9003", "200 server"},
		"requests by IPv4 and a route":          {both, requests, "10.96.0.3:9001", "200 server"},
		"requests by IPv6 and a route":          {both, requests, "[fd96::3]:9003", "200 server"},
		"bytes from a pod with IPv4":            {four, bytes, "10.96.0.2:9000", "server PING"},
		"requests from a pod with IPv4":         {four, requests, "10.96.0.2:9001", "200 server"},
		"from a pod with IPv4 by a route":       {four, requests, "10.96.0.3:9001", "200 server"},
		"full push, bytes by IPv4":              {full, bytes, "10.96.0.2:9000", "server PING"},
		"full push, bytes by IPv6":              {full, bytes, "[fd96::2]:9002", "server PING"},
		"full push, requests by a host":         {full, requests, "10.96.0.2:9001", "200 server"},
		"by IPv4, where the app has IPv6 alone": {both, requests, "10.96.0.2:9003", "503 "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// The first of the two is chosen at random: 20 are enough to see the other.
			for i := range 20 {
				if got := tt.call(tt.from, tt.to); !strings.HasPrefix(got, tt.want) {
					t.Fatalf("call %d: %q, want %q", i, got, tt.want)
				}
			}
		})
	}
}
