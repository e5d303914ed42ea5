package build

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

func TestUnchangedObjectsKeepTheirPointers(t *testing.T) {
	b := New(mesh.Config{})
	b.Set(
		svc("shop", "web", "10.0.0.1", port("http", 80)), slice("shop", "web-1", "web", mesh.SlicePort{Name: "http", Number: 8080}, "10.1.0.1", "10.1.0.2"),
		svc("shop", "db", "10.0.0.2", port("tcp", 5432)), slice("shop", "db-1", "db", mesh.SlicePort{Name: "tcp", Number: 5432}, "10.1.0.3"),
		pod("shop", "a", "10.1.0.1"), pod("shop", "b", "10.1.0.2"), pod("shop", "c", "10.1.0.3"),
	)
	old := b.Mesh()
	if b.Mesh() != old {
		t.Fatal("without a change there is another snapshot")
	}
	again := func() []mesh.Part {
		return []mesh.Part{
			slice("shop", "web-1", "web", mesh.SlicePort{Name: "http", Number: 8080}, "10.1.0.1", "10.1.0.2"), pod("shop", "a", "10.1.0.1"),
			&mesh.GrantSpec{Namespace: "pay", Name: "g", From: []mesh.GrantFrom{{Kind: mesh.KindRoute, Namespace: "shop"}}, To: []string{""}},
			&mesh.AuthorizationSpec{Namespace: "pay", Name: "p"},
		}
	}
	b.Set(again()...)
	old = b.Mesh()
	b.Set(again()...)
	if b.Mesh() != old {
		t.Error("the same parts again made another snapshot")
	}
	changed := func(parts ...mesh.Part) (services, workloads []string) {
		b.Set(parts...)
		next := b.Mesh()
		s, w := mesh.Changed(old, next)
		for _, c := range s {
			services = append(services, fmt.Sprint(nameOf(c.Old), "->", nameOf(c.New)))
		}
		for _, c := range w {
			workloads = append(workloads, fmt.Sprint(title(c.Old), "->", title(c.New)))
		}
		old = next
		return services, workloads
	}
	labelled := pod("shop", "b", "10.1.0.2", "v", "2")
	steps := []struct {
		what                string
		parts               []mesh.Part
		services, workloads []string
	}{
		{"a workload reaches its services' endpoints", []mesh.Part{labelled}, []string{"web->web"}, []string{"b->b"}},
		{"an endpoint more, of the same pod", []mesh.Part{slice("shop", "web-2", "web", mesh.SlicePort{Name: "http", Number: 8081}, "10.1.0.3")}, []string{"db->db", "web->web"}, []string{"c->c"}},
		{"a protocol", []mesh.Part{svc("shop", "db", "10.0.0.2", mesh.PortSpec{Port: mesh.Port{Name: "tcp", Number: 5432, Protocol: mesh.ServerFirst}})}, []string{"db->db", "web->web"}, []string{"c->c"}},
		{"a new service", []mesh.Part{svc("shop", "new", "10.0.0.9")}, []string{"->new"}, nil},
		{"an address only", []mesh.Part{svc("shop", "new", "10.0.0.8")}, []string{"new->new"}, nil},
	}
	for _, step := range steps {
		t.Run(step.what, func(t *testing.T) {
			services, workloads := changed(step.parts...)
			if diff := cmp.Diff(step.services, services); diff != "" {
				t.Errorf("services (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(step.workloads, workloads); diff != "" {
				t.Errorf("workloads (-want +got):\n%s", diff)
			}
		})
	}
	if got := old.ByAddress(addr("10.0.0.9")); got != nil {
		t.Errorf("the address that a service had still leads to %v", got)
	}
	b.Delete(mesh.Key{Kind: mesh.KindService, Namespace: "shop", Name: "new"}, mesh.Key{Kind: mesh.KindPod, Namespace: "shop", Name: "c"})
	next := b.Mesh()
	if next.ByName("shop", "new") != nil || next.ByAddress(addr("10.0.0.8")) != nil || next.Pod("shop", "c") != nil || next.Workload(addr("10.1.0.3"), "") != nil {
		t.Error("what was deleted is still there")
	}
	if e := next.ByName("shop", "db").Endpoints[0]; e.Workload != nil {
		t.Errorf("an endpoint still has the workload that was deleted: %v", e.Workload)
	}
}

func nameOf(s *mesh.Service) string {
	if s == nil {
		return ""
	}
	return s.Name
}

func title(w *mesh.Workload) string {
	if w == nil {
		return ""
	}
	return w.Name
}

// After any sequence of changes, a builder has the same mesh as a new builder with the same parts.
func TestAnyHistoryMakesTheSameMesh(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := New(mesh.Config{})
		parts := map[mesh.Key]mesh.Part{}
		for range 60 {
			for range 1 + random.IntN(4) {
				p := randomPart(random)
				if random.IntN(3) == 0 {
					b.Delete(p.Key())
					delete(parts, p.Key())
				} else {
					b.Set(p)
					parts[p.Key()] = p
				}
			}
			b.Mesh()
		}
		fresh := New(mesh.Config{})
		for _, p := range parts {
			fresh.Set(p)
		}
		got, want := b.Mesh(), fresh.Mesh()
		if diff := diffMeshes(want, got); diff != "" {
			t.Fatalf("seed %d (-at once +step by step):\n%s", seed, diff)
		}
		if diff := cmp.Diff(fresh.Conflicts(), b.Conflicts()); diff != "" {
			t.Fatalf("seed %d: conflicts (-at once +step by step):\n%s", seed, diff)
		}
		sameTables(t, seed, fresh, b)
	}
}

// diffMeshes compares the results of the methods of two meshes.
func diffMeshes(want, got *mesh.Mesh) string {
	all := func(m *mesh.Mesh) any {
		servicesOf, authorizations := map[mesh.Key][]*mesh.Service{}, map[mesh.Key]*mesh.Authorization{}
		for _, w := range m.Workloads() {
			servicesOf[w.Key()], authorizations[w.Key()] = m.ServicesOf(w), m.Authorization(w, w.Namespace)
		}
		return []any{m.Services(), m.Workloads(), servicesOf, authorizations, m.Ignored()}
	}
	return cmp.Diff(all(want), all(got), cmpopts.EquateComparable(netip.Addr{}))
}

// sameTables checks that the tables contain nothing of deleted parts.
func sameTables(t *testing.T, seed uint64, want, got *Builder) {
	t.Helper()
	wanted, have := want.Mesh().Tables(), got.Mesh().Tables()
	for what, n := range map[string][2]int{
		"services": {len(want.services.byName), len(got.services.byName)}, "workloads": {len(want.workloads.byID), len(got.workloads.byID)},
		"labels": {len(want.workloads.byLabel), len(got.workloads.byLabel)}, "selectors": {len(want.services.bySelector), len(got.services.bySelector)},
		"addresses": {len(want.addresses.residents), len(got.addresses.residents)}, "addresses in slices": {len(want.services.bySliceAddress), len(got.services.bySliceAddress)},
		"pods in slices": {len(want.services.bySlicePod), len(got.services.bySlicePod)}, "virtual addresses": {len(want.addresses.byVIP), len(got.addresses.byVIP)},
		"routes": {len(want.routes.ofParent), len(got.routes.ofParent)}, "backends": {len(want.routes.toName), len(got.routes.toName)},
		"policies": {len(want.peerAuthentications), len(got.peerAuthentications)}, "namespaces": {len(want.workloads.byNamespace), len(got.workloads.byNamespace)},
		"found services": {wanted.Services.Len(), have.Services.Len()}, "services of workloads": {wanted.ServicesOf.Len(), have.ServicesOf.Len()},
		"found addresses": {wanted.Addresses.Len(), have.Addresses.Len()}, "found virtual addresses": {wanted.VIPs.Len(), have.VIPs.Len()},
	} {
		if n[0] != n[1] {
			t.Errorf("seed %d: %s: %d, want %d", seed, what, n[1], n[0])
		}
	}
	if diff := cmp.Diff(owners(want.Mesh()), owners(got.Mesh()), cmpopts.EquateComparable(netip.Addr{}, mesh.Location{})); diff != "" {
		t.Errorf("seed %d: addresses (-want +got):\n%s", seed, diff)
	}
}

func owners(m *mesh.Mesh) map[mesh.Location]*mesh.Workload {
	out := map[mesh.Location]*mesh.Workload{}
	for a := range m.Tables().Addresses.All() {
		out[a] = m.Workload(a.Addr, a.Namespace)
	}
	return out
}

func randomPart(r *rand.Rand) mesh.Part {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	space, ip := pick("a", "b", mesh.DefaultRoot), fmt.Sprintf("10.1.0.%d", r.IntN(4))
	n := pick("x", "y", "z")
	labels := map[string]string{"v": pick("1", "2")}
	switch r.IntN(11) {
	case 0:
		s := svc(space, n, pick("10.0.0.0", "10.0.0.1", "10.0.0.2", ip), port(pick("http", "tcp", "mysql"), 80))
		s.Selector = map[string]string{"app": pick("x", "y")}
		return s
	case 1:
		s := slice(space, n, pick("x", "y", "z"), mesh.SlicePort{Name: pick("http", "tcp", "mysql"), Number: []uint16{8080, contract.InboundPort}[r.IntN(2)]}, ip)
		s.Endpoints[0].Pod = pick("", "x", "y")
		return s
	case 2, 3:
		w := pod(space, n, ip, "app", pick("x", "y"), "v", pick("1", "2"))
		w.Proxied, w.Own = r.IntN(2) == 0, r.IntN(2) == 0
		return w
	case 4:
		w := pod(space, n, ip, "app", pick("x", "y"))
		w.Host = true
		return w
	case 5:
		p := &mesh.PolicySpec{Namespace: space, Name: n, Mode: mesh.Mode(pick("", "STRICT", "DISABLE"))}
		if r.IntN(2) == 0 {
			p.Selector = map[string]string{"v": pick("1", "2")}
			p.Ports = map[uint16]mesh.Mode{8080: mesh.ModeDisable}
		}
		return p
	case 6:
		return &mesh.GrantSpec{Namespace: space, Name: n, From: []mesh.GrantFrom{{Kind: mesh.KindRoute, Namespace: pick("a", "b")}}, To: []string{pick("", "x")}}
	case 7:
		return &mesh.AuthorizationSpec{Namespace: space, Name: n, Selector: labels, Deny: r.IntN(2) == 0, Rules: []mesh.AuthorizationRule{{}}}
	case 8:
		return &mesh.BackendPolicySpec{Kind: mesh.KindBackendPolicy, Namespace: space, Name: n, Targets: []mesh.PolicyTarget{{Name: pick("x", "y")}},
			Settings: mesh.BackendPolicy{Limits: mesh.Limits{Connections: r.Uint32N(9)}}}
	case 9:
		return &mesh.IgnoredSpec{Namespace: pick(space, mesh.IstioRoot), Kind: "WasmPlugin", Name: n, Guards: r.IntN(2) == 0, Selector: labels}
	default:
		return &mesh.RouteSpec{Namespace: space, Name: n, Parents: []mesh.Parent{{Namespace: pick("a", "b"), Name: pick("x", "y")}},
			Rules: []mesh.Route{{Backends: []mesh.Backend{{Namespace: pick("a", "b"), Name: pick("x", "y", "z"), Port: 80}}}}}
	}
}

// sized adds n services in 100 namespaces, each with a slice and a pod.
func sized(b *Builder, n int) {
	for i := range n {
		namespace, name := fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("svc-%d", i)
		ip := address(i, 0)
		b.Set(svc(namespace, name, netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}).String(), port("http", 80)),
			slice(namespace, name+"-1", name, mesh.SlicePort{Name: "http", Number: 8080}, ip), pod(namespace, name+"-0", ip, "app", name))
	}
}

func address(i, generation int) string {
	return netip.AddrFrom4([4]byte{10, byte(generation % 2), byte(i >> 8), byte(i)}).String()
}

// A change of one endpoint does not cost more in a mesh that is fifty times larger.
func TestAChangeCostsWhatChanges(t *testing.T) {
	cost := func(n int) float64 {
		b := New(mesh.Config{})
		sized(b, n)
		old, i := b.Mesh(), 0
		return testing.AllocsPerRun(50, func() {
			i++
			b.Set(slice("ns-7", "svc-7-1", "svc-7", mesh.SlicePort{Name: "http", Number: 8080}, address(7, 0), fmt.Sprintf("10.77.0.%d", 1+i%2)))
			next := b.Mesh()
			if services, _ := mesh.Changed(old, next); len(services) != 1 {
				t.Errorf("%d services changed", len(services))
			}
			old = next
		})
	}
	if small, large := cost(100), cost(5000); large > 1.5*small {
		t.Errorf("%v allocations among 5000 services, %v among 100", large, small)
	}
}
