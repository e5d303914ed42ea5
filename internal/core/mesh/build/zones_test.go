package build_test

import (
	"net/netip"
	"slices"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// The zone of a client is the one that slices in most namespaces contain for its node.
func TestZoneOfANode(t *testing.T) {
	b := build.New(mesh.Config{})
	said := func(namespace, name, zone string) *mesh.SliceSpec {
		return &mesh.SliceSpec{Name: name, Namespace: namespace, Service: "any", Endpoints: []mesh.SliceEndpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Node: "n1", Zone: zone}}}
	}
	slice := func(name, zone string) *mesh.SliceSpec { return said("any", name, zone) }
	b.Set(&mesh.WorkloadSpec{Workload: mesh.Workload{Name: "client", Namespace: "shop", Node: "n1"}})
	zone := func() string { m := b.Mesh(); return m.PlaceOf(m.Pod("shop", "client")).Zone }
	var got []string
	for _, change := range []func(){
		func() {},
		func() { b.Set(slice("one", "a"), slice("two", "a")) },
		func() { b.Delete(slice("one", "").Key()) },
		func() { b.Set(slice("two", "b")) },
		func() { b.Delete(slice("two", "").Key()) },
		func() {
			b.Set(said("bank", "z", "z"), said("shop", "z", "z"), said("evil", "1", "a"), said("evil", "2", "a"), said("evil", "3", "a"))
		},
		func() { b.Delete(said("bank", "z", "").Key()) },
	} {
		change()
		got = append(got, zone())
	}
	if want := []string{"", "a", "a", "b", "", "z", "a"}; !slices.Equal(got, want) {
		t.Errorf("zones: %q; want %q", got, want)
	}
}
