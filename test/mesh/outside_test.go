package mesh

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/resource"
)

// An Envoy whose bootstrap was not written by the agent reaches addresses outside the mesh.
func TestPlainEnvoyReachesOutside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := s.pod("foreign", "client")
	p.foreign = true
	p.proxied()
	for _, to := range []string{outside + ":8080", s.plain.v4.String() + ":8080", "10.96.0.1:8080"} {
		if got := get(p.client(), "http://"+to+"/"); !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: %s", to, got)
		}
	}
}

// withoutPassthrough returns a bootstrap without the cluster for addresses outside the mesh. The control plane sends
// that cluster too.
func withoutPassthrough(t testing.TB, bootstrap []byte) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(bootstrap, &all); err != nil {
		t.Fatal(err)
	}
	static := all["static_resources"].(map[string]any)
	clusters := static["clusters"].([]any)
	left := slices.DeleteFunc(slices.Clone(clusters), func(c any) bool { return c.(map[string]any)["name"] == envoy.PassthroughCluster })
	if len(left) != len(clusters)-1 {
		t.Fatalf("the bootstrap has no %s", envoy.PassthroughCluster)
	}
	static["clusters"] = left
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// An external name that cannot be resolved delays neither the first use of other services nor the start of another
// pod of a workload that used the name.
func TestNameThatIsNotResolved(t *testing.T) {
	s := newShop(t, func(r *resource.Source) { r.FirstUseTimeout = 4 * time.Second }) // short, because the test waits for it
	var silent net.PacketConn
	var err error
	s.router.Do(func() { silent, err = net.ListenPacket("udp", resolver+":53") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	var queries atomic.Int64
	go func() {
		b := make([]byte, 512)
		for {
			if _, _, err := silent.ReadFrom(b); err != nil {
				return
			}
			queries.Add(1)
		}
	}()
	s.source.set(&mesh.ServiceSpec{Name: "ext", Namespace: namespace, External: "example.test", Ports: []mesh.PortSpec{port(8080, mesh.HTTP)}})
	s.service("n50", "10.96.0.50", "server", port(8080, mesh.HTTP))
	s.route("n50", "n50", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "ext", Port: 8080, Weight: 1}}})
	use := func(p *pod, to string) {
		t.Helper()
		s.eventually(t, p.name+" uses "+to, func() bool { return strings.HasPrefix(get(p.client(), "http://"+to+":8080/"), "200 ") })
	}
	if got := get(s.client.client(), "http://10.96.0.50:8080/"); !strings.HasPrefix(got, "503 ") {
		t.Errorf("the name itself: %s", got)
	}
	s.eventually(t, "a query", func() bool { return queries.Load() > 0 })
	use(s.client, "10.96.0.1")
	use(s.client, "10.96.0.5")
	again := s.pod("client2", "client").proxied() // the same workload, so the proxy has prewarmed clusters
	use(again, "10.96.0.1")
}
