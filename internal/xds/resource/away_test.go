package resource_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/wire"
	"outrider.dev/internal/xds/resource"
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

// The networks for the time without a control plane contain the address of every service, and
// of no pod; they follow changes.
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

// 10,000 services of a cluster are one network.
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

// A stand-in is a template with a name and a load assignment appended: as a cluster of the
// control plane's own for the same address.
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
	if a, b := v.Away(), v.Away(); &a[0] != &b[0] || away.Grace != resource.DefaultFirstUseTimeout {
		t.Errorf("made twice, or a grace of %s", away.Grace)
	}
}
