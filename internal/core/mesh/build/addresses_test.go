package build

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/mesh"
)

// A virtual address of two services belongs to one of them, regardless of the order in which they arrive. If
// that one is deleted, the other gets the address.
func TestOneAddressOfTwo(t *testing.T) {
	b := New(mesh.Config{})
	addresses := func() map[string]string {
		out := map[string]string{}
		for _, s := range b.Mesh().Services() {
			out[s.Namespace+"/"+s.Name] = fmt.Sprint(s.Addresses)
		}
		return out
	}
	check := func(when string, conflicts int, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, addresses()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		if got := b.Conflicts(); len(got) != conflicts {
			t.Errorf("%s: conflicts %v, want %d", when, got, conflicts)
		}
	}
	first, second := svc("a", "one", "10.0.0.1"), svc("b", "two", "10.0.0.1")
	b.Set(second)
	check("one alone", 0, map[string]string{"b/two": "[10.0.0.1]"})
	b.Set(first)
	check("both", 1, map[string]string{"a/one": "[10.0.0.1]", "b/two": "[]"})
	b.Set(pod("a", "p", "10.0.0.1"))
	check("and a pod that has it", 2, map[string]string{"a/one": "[]", "b/two": "[]"})
	if b.Mesh().ByAddress(addr("10.0.0.1")) != nil {
		t.Error("the pod's address leads to a service")
	}
	b.Delete(mesh.Key{Kind: mesh.KindPod, Namespace: "a", Name: "p"}, first.Key())
	check("without the two", 0, map[string]string{"b/two": "[10.0.0.1]"})
	if b.Mesh().ByAddress(addr("10.0.0.1")) != b.Mesh().ByName("b", "two") {
		t.Error("the address leads elsewhere")
	}
}

// A Host cannot divert connections of other tenants: only clients in its own namespace use its address, and
// only if no pod or service has it, regardless of the order in which the objects arrive.
func TestAddressesOfHosts(t *testing.T) {
	host := func(namespace, name, address string) *mesh.WorkloadSpec {
		h := pod(namespace, name, address, "app", "h")
		h.Host = true
		return h
	}
	others := []mesh.Part{
		svc("shop", "web", "10.0.0.1"), pod("shop", "b", "10.1.0.1"), host("bank", "vm", "10.9.0.1"),
		svc("shop", "db", "10.0.0.2", port("tcp", 5432)), slice("shop", "db-1", "db", mesh.SlicePort{Name: "tcp", Number: 5432}, "10.9.0.2"),
	}
	evil := []mesh.Part{host("evil", "h1", "10.0.0.1"), host("evil", "h2", "10.1.0.1"), host("evil", "h3", "10.9.0.1"), host("evil", "h4", "10.9.0.2"), host("evil", "h5", "10.9.0.2")}
	for _, parts := range [][]mesh.Part{slices.Concat(others, evil), slices.Concat(evil, others)} {
		b := New(mesh.Config{})
		for _, p := range parts {
			b.Set(p)
			b.Mesh()
		}
		m := b.Mesh()
		for _, test := range []struct{ namespace, address, want string }{
			{"shop", "10.1.0.1", "b"}, {"evil", "10.1.0.1", "b"},
			{"shop", "10.9.0.1", ""}, {"bank", "10.9.0.1", "vm"}, {"evil", "10.9.0.1", "h3"},
			{"shop", "10.9.0.2", ""}, {"evil", "10.9.0.2", "h4"},
		} {
			if got := title(m.Workload(addr(test.address), test.namespace)); got != test.want {
				t.Errorf("%s finds %q at %s, want %q", test.namespace, got, test.address, test.want)
			}
		}
		if s := m.ByAddress(addr("10.0.0.1")); s == nil || s.Name != "web" {
			t.Errorf("the service's address leads to %v", s)
		}
		if w := m.ByName("shop", "db").Endpoints[0].Workload; w != nil {
			t.Errorf("an endpoint of shop is %v", w)
		}
		var said []string
		for _, c := range b.Conflicts() {
			said = append(said, fmt.Sprint(c.Object, " ", c.Field, ": ", c.Message))
		}
		want := []string{
			"Host evil/h1 spec.address: 10.0.0.1 is ignored: it is the address of Service shop/web; give the host another",
			"Host evil/h2 spec.address: 10.1.0.1 is ignored: it is the address of Pod shop/b; give the host another",
			"Host evil/h5 spec.address: 10.9.0.2 is ignored: it is the address of Host evil/h4; give the host another",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("conflicts (-want +got):\n%s", diff)
		}
		b.Delete(mesh.Key{Kind: mesh.KindHost, Namespace: "evil", Name: "h4"}, mesh.Key{Kind: mesh.KindPod, Namespace: "shop", Name: "b"})
		m = b.Mesh()
		if a, b := title(m.Workload(addr("10.9.0.2"), "evil")), title(m.Workload(addr("10.1.0.1"), "evil")); a != "h5" || b != "h2" {
			t.Errorf("without the first: %s and %s, want h5 and h2", a, b)
		}
	}
}
