package resource_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

func awayOf(t *testing.T, s *resource.Source) wire.Away {
	t.Helper()
	v, _ := s.Current()
	away, err := wire.ParseAway(v.Away())
	if err != nil {
		t.Fatal(err)
	}
	return away
}

// The networks for the time without a control plane contain the address of every service and of no pod.
// They are updated after changes.
func TestNetworksOfServices(t *testing.T) {
	h := newTestMesh()
	source := resource.New(h)
	service := func(name string, at string) *mesh.ServiceSpec {
		return &mesh.ServiceSpec{Name: name, Namespace: "shop", Addresses: addresses(at), Ports: []mesh.PortSpec{{Port: mesh.Port{Name: "a", Number: 80}}}}
	}
	want := func(what string, networks ...string) {
		t.Helper()
		var got []string
		for _, p := range awayOf(t, source).Services {
			got = append(got, p.String())
		}
		if !slices.Equal(got, networks) {
			t.Errorf("%s: %v, want %v", what, got, networks)
		}
	}
	want("nothing")
	h.builder.Set(service("a", "10.96.0.1 fd96::1"), service("headless", ""))
	want("a service with two families", "10.96.0.0/20", "fd96::/112")
	h.builder.Set(service("b", "10.96.16.9"))
	want("neighbours", "10.96.0.0/19", "fd96::/112")
	with := pod("p", "p", "10.96.16.8")
	h.builder.Set(with)
	want("a pod in the block", "10.96.0.0/20", "10.96.16.9/32", "fd96::/112")
	h.builder.Delete(with.Key())
	want("no pod", "10.96.0.0/19", "fd96::/112")
	h.builder.Delete(service("a", "").Key())
	want("one service", "10.96.16.0/20")
}

// The 10,000 services of a cluster form one network.
func TestNetworksOfManyServices(t *testing.T) {
	h := newTestMesh()
	source := resource.New(h)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		n := random.IntN(1 << 20)
		at := netip.AddrFrom4([4]byte{10, byte(96 + n>>16), byte(n >> 8), byte(n)})
		h.builder.Set(&mesh.ServiceSpec{Name: fmt.Sprint("s", i), Namespace: "shop", Addresses: []netip.Addr{at}})
	}
	if got := fmt.Sprint(awayOf(t, source).Services); got != "[10.96.0.0/12]" {
		t.Errorf("%.200s", got)
	}
}

// A stand-in is a template with a name and a load assignment appended. It equals the control plane's
// own cluster for the same address.
func TestTemplates(t *testing.T) {
	h := newTestMesh(parts()...)
	source := resource.New(h)
	away := awayOf(t, source)
	v, _ := source.Current()
	for name, template := range map[string][]byte{"http|10.9.9.9:80": away.HTTP, "tcp|10.9.9.9:80": away.TCP} {
		want, got := &cluster.Cluster{}, &cluster.Cluster{}
		if err := v.Named(client(withAgent), "type.googleapis.com/envoy.config.cluster.v3.Cluster", name).Resource.Body.UnmarshalTo(want); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(template, got); err != nil {
			t.Fatal(err)
		}
		got.Name, got.LoadAssignment = want.Name, want.LoadAssignment
		if !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if a, b := v.Away(), v.Away(); &a[0] != &b[0] || away.Grace != contract.DefaultFirstUse {
		t.Errorf("made twice, or a grace of %s", away.Grace)
	}
}

// Connections to addresses of services are retried, in separate filter chains. Existing chains stay the
// same when a range is added, and no prefix is in two of them.
func TestRangesOfServices(t *testing.T) {
	at := func(vip string) *mesh.ServiceSpec { return service("s"+vip, "web", vip, port(80, mesh.TCP)) }
	chains := func(s *resource.Source) map[string]*listener.FilterChain {
		t.Helper()
		v, _ := s.Current()
		out, seen := map[string]*listener.FilterChain{}, map[string]bool{}
		for _, c := range message(t, v.Named(client(withAgent), xds.ListenerType, "virtualOutbound").Resource).(*listener.Listener).FilterChains {
			if !strings.HasPrefix(c.Name, "tcp") {
				continue
			}
			out[c.Name] = c
			for _, r := range c.FilterChainMatch.PrefixRanges {
				if seen[r.String()] {
					t.Errorf("%s is in two chains", r)
				}
				seen[r.String()] = true
			}
			if len(c.FilterChainMatch.PrefixRanges) == 0 {
				t.Errorf("chain %q is for all addresses", c.Name)
			}
		}
		return out
	}
	for _, tt := range []struct {
		networks, vips, want string
	}{
		{"10.0.0.0/8 fd00::/8", "10.96.0.1", "tcp, tcp 10.96.0.0/16"},
		{"10.0.0.0/8 fd00::/8", "10.96.0.1 10.43.0.9 fd96::1", "tcp, tcp 10.43.0.0/16, tcp 10.96.0.0/16, tcp fd96::/112"},
		{"10.0.0.0/8 fd00::/8", "10.96.0.1 10.111.7.1 10.98.0.1", "tcp, tcp 10.96.0.0/12, tcp 10.96.0.0/16"},
		{"10.96.0.0/16", "10.96.0.1", "tcp 10.96.0.0/16"},
		{"10.96.0.0/20 10.244.0.0/16", "10.96.0.1", "tcp, tcp 10.96.0.0/20"},
		{"10.244.0.0/16", "10.96.0.1", "tcp"},
	} {
		var config mesh.Config
		for n := range strings.FieldsSeq(tt.networks) {
			config.Networks = append(config.Networks, netip.MustParsePrefix(n))
		}
		h := &testMesh{build.New(config), make(chan struct{})}
		source, before := resource.New(h), map[string]*listener.FilterChain{}
		for vip := range strings.FieldsSeq(tt.vips) {
			h.builder.Set(at(vip))
			now := chains(source)
			for name, c := range before { // any order: each is compared by itself
				if name != "tcp" && !proto.Equal(c, now[name]) {
					t.Errorf("%s of %s: %s changed the chain %q", tt.vips, tt.networks, vip, name)
				}
			}
			before = now
		}
		if got := strings.Join(slices.Sorted(maps.Keys(before)), ", "); got != tt.want {
			t.Errorf("%s of %s: %s; want %s", tt.vips, tt.networks, got, tt.want)
		}
		for name, c := range before { // any order: each is checked by itself
			var p tcp.TcpProxy
			if err := c.Filters[1].GetTypedConfig().UnmarshalTo(&p); err != nil || (p.MaxConnectAttempts.GetValue() > 1) != (name != "tcp") {
				t.Errorf("chain %q: %d tries, %v", name, p.MaxConnectAttempts.GetValue(), err)
			}
		}
	}
}
