package mesh

import (
	"net"
	"strings"
	"testing"

	"outrider.dev/internal/mesh"
)

// An external name that the resolver does not resolve blocks nothing else: neither the first
// use of other services, nor the next pod of a workload that used it, nor a proxy with full
// push.
func TestNameThatIsNotResolved(t *testing.T) {
	s := newShop(t)
	var silent net.PacketConn
	var err error
	s.router.Do(func() { silent, err = net.ListenPacket("udp", resolver+":53") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	queried := make(chan struct{})
	go func() {
		b := make([]byte, 512)
		for n := 0; ; n++ {
			if _, _, err := silent.ReadFrom(b); err != nil {
				return
			}
			if n == 0 {
				close(queried)
			}
		}
	}()
	s.source.set(&mesh.ServiceSpec{Name: "ext", Namespace: namespace, External: "example.test", Ports: []mesh.PortSpec{port(8080, mesh.HTTP)}})
	s.service("n50", "10.96.0.50", "server", port(8080, mesh.HTTP))
	s.route("n50", "n50", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "ext", Port: 8080, Weight: 1}}})
	use := func(p *pod, to string) {
		t.Helper()
		eventually(t, p.name+" uses "+to, func() bool { return strings.HasPrefix(get(p.client(), "http://"+to+":8080/"), "200 ") })
	}
	if got := get(s.client.client(), "http://10.96.0.50:8080/"); !strings.HasPrefix(got, "503 ") {
		t.Errorf("the name itself: %s", got)
	}
	<-queried
	use(s.client, "10.96.0.1")
	use(s.client, "10.96.0.5")
	again := s.pod("client2", "client").proxied() // of the same workload: its clusters are prewarmed
	use(again, "10.96.0.1")
	full := s.pod("full", "full")
	full.metadata = map[string]any{"OUTRIDER_PUSH": "full"}
	full.proxied()
}
