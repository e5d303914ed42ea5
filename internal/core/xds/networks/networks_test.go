package networks

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

func addresses(list string) (out []netip.Addr) {
	for a := range strings.FieldsSeq(list) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func service(name, at string) *mesh.ServiceSpec {
	return &mesh.ServiceSpec{Name: name, Namespace: "shop", Addresses: addresses(at)}
}

// The networks contain the addresses of all services and of no pod. They are updated after changes.
func TestServices(t *testing.T) {
	b := build.New(mesh.Config{})
	last, blocks := b.Mesh(), Blocks{}
	want := func(what, networks string) {
		t.Helper()
		now := b.Mesh()
		blocks, last = blocks.After(mesh.Changed(last, now)), now
		if got := fmt.Sprint(blocks.Services(now)); got != "["+networks+"]" {
			t.Errorf("%s: %s, want %s", what, got, networks)
		}
	}
	want("nothing", "")
	b.Set(service("a", "10.96.0.1 fd96::1"), service("headless", ""))
	want("a service with two families", "10.96.0.0/20 fd96::/112")
	b.Set(service("b", "10.96.16.9"))
	want("neighbours", "10.96.0.0/19 fd96::/112")
	pod := &mesh.WorkloadSpec{Ready: true, Workload: mesh.Workload{Name: "p", Namespace: "shop", Addresses: addresses("10.96.16.8")}}
	b.Set(pod)
	want("a pod in the block", "10.96.0.0/20 10.96.16.9/32 fd96::/112")
	b.Delete(pod.Key())
	want("no pod", "10.96.0.0/19 fd96::/112")
	b.Delete(service("a", "").Key())
	want("one service", "10.96.16.0/20")
}

// The 10,000 services of a cluster form one network.
func TestManyServices(t *testing.T) {
	b := build.New(mesh.Config{})
	none, random := b.Mesh(), rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		n := random.IntN(1 << 20)
		b.Set(service(fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, byte(96 + n>>16), byte(n >> 8), byte(n)}).String()))
	}
	if got := fmt.Sprint(Blocks{}.After(mesh.Changed(none, b.Mesh())).Services(b.Mesh())); got != "[10.96.0.0/12]" {
		t.Errorf("%.200s", got)
	}
}
