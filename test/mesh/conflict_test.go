package mesh

import (
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

const rejected = `listener_manager\.lds\.update_rejected`

// evil makes a service in another namespace whose endpoint is the address of an existing pod. The service lists the
// ports of the pod's proxy, and a port of the pod's application with a wrong protocol.
func evil(at netip.Addr) []mesh.Part {
	s := &mesh.ServiceSpec{Name: "evil", Namespace: "bank", Addresses: []netip.Addr{netip.MustParseAddr("10.96.9.9")}}
	slice := &mesh.SliceSpec{Name: "evil-1", Namespace: "bank", Service: "evil", Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{at}, Ready: true}}}
	for _, number := range append([]uint16{8080}, mesh.ProxyPorts...) {
		p := port(number, mesh.ServerFirst)
		p.Number -= 1000 // number of the service's port, which differs from that of the endpoint
		s.Ports = append(s.Ports, p)
		slice.Ports = append(slice.Ports, mesh.SlicePort{Name: p.Name, Number: number})
	}
	return []mesh.Part{s, slice}
}

// A service in another namespace that has a pod's address as endpoint cannot change the listeners, the mutual TLS or
// the later policies of the pod, and does not make the ports of the pod's proxy reachable.
func TestServiceOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	byMutualTLS := func() {
		t.Helper()
		if got := get(s.client.client(), "http://10.96.0.1:8080/peer"); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "URI=spiffe://") {
			t.Fatalf("%q, want the identity of the client", got)
		}
	}
	byMutualTLS()
	pushes := s.server.stat(`listener_manager\.lds\.update_success`)
	s.source.set(evil(s.server.v4)...)
	s.eventually(t, "its port numbers, at the server", func() bool { return s.server.stat(`listener_manager\.lds\.update_success`) > pushes })
	s.client.send("10.96.9.9:7080", "PING") // the client uses the service too
	for range 5 {
		byMutualTLS()
	}
	s.source.set(&mesh.PolicySpec{Name: "all", Namespace: namespace, Mode: mesh.ModeStrict})
	s.eventually(t, "the policy at the server", func() bool {
		return !strings.HasPrefix(s.plain.send(s.server.v4.String()+":6379", "PING"), "server")
	})
	for _, number := range []string{":14001", ":14006", ":14007", ":14016"} {
		if got := s.client.send("10.96.9.9"+number, "PING"); got != closed {
			t.Errorf("%s: %q, want it closed", number, got)
		}
	}
	if n := s.server.stat(rejected); n != 0 {
		t.Errorf("the server's proxy rejected %d updates", n)
	}
	again := s.pod("server2", "server")
	s.source.set(evil(again.v4)...)
	again.proxied() // waits until the proxy is ready
}

// If two services have the same address, it belongs to the first of them.
func TestOneAddressOfTwo(t *testing.T) {
	w := newWorld(t)
	server := w.pod("server", "server")
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	w.service("zzz", "10.96.0.1 10.96.0.2", "none", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	client := w.pod("client", "client").proxied()
	server.proxied()
	go echo(server.listen(8080), "server")
	go repeat(server.listen(6379), "server")
	if got := get(client.client(), "http://10.96.0.1:8080/"); !strings.HasPrefix(got, "200 server") {
		t.Error(got)
	}
	if got := client.send("10.96.0.1:6379", "PING"); got != "server PING" {
		t.Errorf("%s", got)
	}
	if n := client.stat(rejected); n != 0 {
		t.Errorf("the client's proxy rejected %d updates", n)
	}
}
