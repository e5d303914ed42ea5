package resource_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// genes are the random choices from which an object is made. Changing one of them changes one field of
// the object.
type genes []int

func (g *genes) of(n int) int {
	first := (*g)[0]
	*g = (*g)[1:]
	return first % n
}

func (g *genes) one(of ...string) string { return of[g.of(len(of))] }

// objectsOfRandom lists all objects that a random mesh may contain, including every kind that affects
// resources.
var objectsOfRandom = []func(genes) mesh.Part{
	podOf("x", "shop"), podOf("y", "bank"), // the pods of the clients
	podOf("y", "shop"), sliceOf("x", "shop"), sliceOf("y", "shop"), sliceOf("x", "bank"),
	serviceOf("x", "shop", 80), serviceOf("y", "shop", 80), serviceOf("x", "bank", 90), serviceOf("otel", "shop", 4317),
	func(g genes) mesh.Part {
		p := &mesh.PolicySpec{Namespace: g.one("shop", mesh.DefaultRoot), Name: "policy", Mode: mesh.Mode(g.one("STRICT", "DISABLE"))}
		if g.of(2) == 0 {
			p.Selector, p.Ports = map[string]string{"app": g.one("x", "y")}, map[uint16]mesh.Mode{80: mesh.ModeDisable}
		}
		return p
	},
	routeOf("x"), routeOf("y"), faultsOf("x"), faultsOf("y"),
	func(g genes) mesh.Part {
		return &mesh.GrantSpec{Name: "grant", Namespace: "bank", From: []mesh.GrantFrom{{Kind: mesh.KindRoute, Namespace: g.one("shop", "bank")}}, To: []string{""}}
	},
	func(g genes) mesh.Part {
		return &mesh.AuthorizationSpec{Name: "authorization", Namespace: g.one("shop", mesh.DefaultRoot), Deny: g.of(2) == 0, Closed: g.of(5) == 0,
			Selector: map[string]string{"app": g.one("x", "y")},
			Rules:    []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: mesh.Method, Values: []string{g.one("GET", "PUT")}}}}}}}
	},
}

func serviceOf(name, namespace string, number uint16) func(genes) mesh.Part {
	return func(g genes) mesh.Part {
		s := &mesh.ServiceSpec{Name: name, Namespace: namespace, Selector: map[string]string{"app": g.one("x", "y")}, Traffic: mesh.Traffic(g.one("", string(mesh.SameZone), string(mesh.SameNode), string(mesh.OnlyNode)))}
		s.Addresses = addresses(g.one("10.96.0.1", "10.96.0.2", "10.97.0.1", "10.96.0.3 fd96::1", "fd96::1 10.96.0.3", "10.96.0.3 fd96::1", "fd96::1 10.96.0.3", ""))
		s.Headless, s.Affinity = len(s.Addresses) == 0, g.of(3) == 0
		s.ExportTo = [][]string{nil, {"."}, {"shop"}}[g.of(3)]
		s.Ports = []mesh.PortSpec{port(number, []mesh.Protocol{mesh.HTTP, mesh.GRPC, mesh.TCP, mesh.ServerFirst, mesh.Unknown}[g.of(5)])}
		if g.of(4) == 0 {
			s.Ports = append(s.Ports, port(90+number%2, mesh.TCP))
		}
		if g.of(8) == 0 {
			s.External, s.Selector = g.one("one.example", "two.example"), nil
		}
		return s
	}
}

func sliceOf(service, namespace string) func(genes) mesh.Part {
	return func(g genes) mesh.Part {
		e := mesh.SliceEndpoint{Addresses: addresses(g.one("10.244.0.1", "10.244.0.2", "10.244.0.3")), Ready: g.of(4) > 0, Node: g.one("", "n"), Zone: g.one("", "a", "b")}
		other := mesh.SliceEndpoint{Addresses: addresses("10.244.0.9"), Ready: true, Zone: "b"}
		number := []uint16{80, 8080}[g.of(2)]
		return &mesh.SliceSpec{Name: service, Namespace: namespace, Service: service,
			Ports: []mesh.SlicePort{{Name: "p80", Number: number}, {Name: "p90", Number: number}}, Endpoints: []mesh.SliceEndpoint{e, other}}
	}
}

func podOf(name, namespace string) func(genes) mesh.Part {
	return func(g genes) mesh.Part {
		w := pod(name, name, g.one("10.244.0.1", "10.244.0.2", "10.97.0.1"))
		w.Namespace, w.Labels["app"], w.Proxied, w.Zone, w.Node = namespace, g.one("x", "y"), g.of(4) > 0, g.one("", "a", "b"), g.one("", "n")
		return w
	}
}

func routeOf(to string) func(genes) mesh.Part {
	return func(g genes) mesh.Part {
		backend := func() mesh.Backend {
			return mesh.Backend{Namespace: g.one("shop", "bank"), Name: g.one("x", "y"), Port: []uint16{80, 90}[g.of(2)], Weight: 1}
		}
		return &mesh.RouteSpec{Namespace: "shop", Name: to, Parents: []mesh.Parent{{Namespace: "shop", Name: to}}, Rules: []mesh.Route{{Backends: []mesh.Backend{backend(), backend()}}}}
	}
}

func faultsOf(service string) func(genes) mesh.Part {
	return func(g genes) mesh.Part {
		p := policyFor(service, mesh.BackendPolicy{Limits: mesh.Limits{Connections: uint32(g.of(3))}})
		if g.of(2) == 0 {
			p.Settings.Faults = mesh.Faults{Delay: 1, DelayPercent: float64(1 + g.of(99))}
		}
		return p
	}
}

// namesOfRandom returns the names of all resources that a random mesh may have, and some other names.
func namesOfRandom() map[string][]string {
	out := map[string][]string{
		xds.ListenerType: {"virtualInbound", "virtualInbound-early", "virtualOutbound", "virtualOutbound-early", "routed", "late",
			"outbound_80", "outbound_90", "outbound_10.96.0.1_80", "outbound_[fd96__1]_90", "x.shop:80"},
		xds.ClusterType: {"tracing"},
	}
	add := func(typeURL, format string, of ...any) {
		out[typeURL] = append(out[typeURL], fmt.Sprintf(format, of...))
	}
	for _, number := range []int{80, 90} {
		for _, at := range []string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "10.97.0.1", "10.97.0.9", "[fd96::1]", "10.244.0.1", "10.244.0.2"} {
			for _, prefix := range []string{"http", "tcp", "raw"} {
				add(xds.ClusterType, "%s|%s:%d", prefix, at, number)
			}
		}
		for _, host := range []string{"x.shop", "y.shop", "x.bank"} {
			host += ".svc.cluster.local"
			for _, family := range []string{"", "IPv6"} {
				add(xds.ClusterType, "outbound|%d|%s|%s", number, family, host)
				add(xds.EndpointType, "outbound|%d|%s|%s", number, family, host)
			}
			add(xds.RouteType, "outbound|%d||%s", number, host)
			add(xds.VirtualHostType, "routed/%d.%s", number, host)
			add(xds.VirtualHostType, "routed/%d-ipv6.%s", number, host)
		}
	}
	return out
}

// randomClients returns proxies with and without a workload, and a gRPC client.
func randomClients() map[string]*xds.Proxy {
	return map[string]*xds.Proxy{
		"x in shop": client(relayed, func(p *xds.Proxy) {
			p.ID, p.ServiceAccount, p.Metadata[contract.MetadataPrewarm] = "sidecar~10.244.0.1~x.shop~d", "x", "x,y:80"
		}),
		"y in bank": client(func(p *xds.Proxy) {
			p.ID, p.Namespace, p.ServiceAccount, p.Addresses = "sidecar~10.244.0.2~y.bank~d", "bank", "y", addresses("10.244.0.2")
		}),
		"gRPC": client(func(p *xds.Proxy) { p.GRPC = true }),
	}
}

// served contains everything that clients can get from one snapshot, by client, type and name.
type served struct {
	versions map[[3]string]string
	wildcard map[[3]string]bool // resources that a client gets without naming them
}

func servedBy(v xds.Snapshot, names map[string][]string) served {
	out := served{map[[3]string]string{}, map[[3]string]bool{}}
	for who, p := range randomClients() {
		for _, typeURL := range types {
			for _, b := range v.Wildcard(p, typeURL, nil) {
				out.wildcard[[3]string{who, typeURL, b.Resource.Name}] = true
				out.versions[[3]string{who, typeURL, b.Resource.Name}] = b.Resource.Version
			}
			for _, name := range names[typeURL] {
				if r := v.Named(p, typeURL, name).Resource; r != nil {
					out.versions[[3]string{who, typeURL, name}] = r.Version
				}
			}
		}
	}
	return out
}

// notReported returns the differences that are missing from the changes.
func notReported(old, now served, changes map[string]xds.Change) []string {
	out, clients := map[string]bool{}, randomClients()
	for _, versions := range []map[[3]string]string{old.versions, now.versions} {
		for key := range versions {
			c, member := changes[key[1]], old.wildcard[key] || now.wildcard[key]
			_, named := c.Names[key[2]]
			reported := named || c.AllNames || c.For != nil && c.For(clients[key[0]]) || c.Match != nil && c.Match(key[2]) || c.Wildcard && member
			if old.versions[key] != now.versions[key] && !reported || old.wildcard[key] != now.wildcard[key] && !c.Wildcard {
				out[fmt.Sprint(key)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// After any change of the mesh, Diff reports every resource that differs, and resources that were
// carried over equal those that a newly started control plane builds.
func TestDiffOfAnyHistory(t *testing.T) {
	names := namesOfRandom()
	for seed := range uint64(24) {
		config := []mesh.Config{{}, observed(t)}[seed%2]
		random := rand.New(rand.NewPCG(seed, 1))
		h, kept, objects := newTestMeshOf(config), map[int]mesh.Part{}, make([]genes, len(objectsOfRandom))
		for i := range objects {
			objects[i] = random.Perm(20)
		}
		for i := range 2 {
			kept[i] = objectsOfRandom[i](objects[i])
			h.builder.Set(kept[i])
		}
		source := resource.New(h)
		last, _ := source.Current()
		before := servedBy(last, names)
		for step := range 50 {
			i := random.IntN(len(objects))
			if old := kept[i]; old != nil {
				h.builder.Delete(old.Key())
			}
			if delete(kept, i); i < 2 || step < len(objects) || random.IntN(4) > 0 {
				objects[i][random.IntN(8)] = random.IntN(1000)
				kept[i] = objectsOfRandom[i](objects[i])
				h.builder.Set(kept[i])
			}
			now, _ := source.Current()
			after := servedBy(now, names)
			changes, known := now.Diff(last)
			if missing := notReported(before, after, changes); !known || len(missing) > 0 {
				t.Fatalf("seed %d, step %d, after a change of %T %d: not reported: %v", seed, step, kept[i], i, missing)
			}
			last, before = now, after
		}
		fresh, _ := resource.New(newTestMeshOf(config, slices.Collect(maps.Values(kept))...)).Current()
		if want := servedBy(fresh, names); !maps.Equal(want.versions, before.versions) || !maps.Equal(want.wildcard, before.wildcard) {
			t.Fatalf("seed %d: what was kept is not what is built anew", seed)
		}
	}
}

// If a service gets a pod as its endpoint, requests to that pod may be counted for another service than before.
func TestDiffWhereRequestsAreCounted(t *testing.T) {
	byHand := &mesh.ServiceSpec{Name: "byhand", Namespace: "shop", Addresses: addresses("10.96.0.11"), Ports: []mesh.PortSpec{port(80, mesh.HTTP)}}
	h := newTestMeshOf(observed(t), append(parts(), byHand)...)
	source := resource.New(h)
	old, _ := source.Current()
	h.builder.Set(&mesh.SliceSpec{Name: "byhand-1", Namespace: "shop", Service: "byhand", Ports: []mesh.SlicePort{{Name: "p80", Number: 8080}},
		Endpoints: []mesh.SliceEndpoint{{Addresses: addresses("10.244.0.1"), Ready: true}}})
	now, _ := source.Current()
	changes, _ := now.Diff(old)
	in := func(v xds.Snapshot) *xds.Resource {
		return v.Named(client(relayed), xds.ListenerType, "virtualInbound").Resource
	}
	if in(old).Version == in(now).Version || !changes[xds.ListenerType].AllNames {
		t.Errorf("reported: %v", changes)
	}
}

// Diff reports little more than what differs, because what it reports is compared for every proxy.
func TestWhatChangesReach(t *testing.T) {
	h := newTestMesh(append(parts(), slice("routed", "10.244.7.1"))...)
	source := resource.New(h)
	limits := []string{"Cluster: [10.96.0.1 [fd96::1] web], all false, wildcard false", "ClusterLoadAssignment: [web], all false, wildcard false"}
	faults := append(slices.Clone(limits), "VirtualHost: [], all true, wildcard false", "RouteConfiguration: [], all true, wildcard false")
	for _, step := range []struct {
		name string
		part mesh.Part
		want []string
	}{
		{"nothing", pod("db-1", "db", "10.244.0.4"), nil},
		{"an endpoint", slice("routed", "10.244.7.2"), []string{"Cluster: [10.96.0.5 [fd96::5] routed], all false, wildcard false", "ClusterLoadAssignment: [routed], all false, wildcard false"}},
		{"limits", policyFor("web", mesh.BackendPolicy{Limits: mesh.Limits{Connections: 7}}), limits},
		{"other limits", policyFor("web", mesh.BackendPolicy{Limits: mesh.Limits{Connections: 8}}), limits},
		{"faults", policyFor("web", mesh.BackendPolicy{Faults: mesh.Faults{HTTPStatus: 500, AbortPercent: 1}}), faults},
		{"outliers in their place", policyFor("web", mesh.BackendPolicy{Outliers: mesh.Outliers{Interval: time.Second}}), faults},
		{"an AuthorizationPolicy", &mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Rules: []mesh.AuthorizationRule{{}}}, []string{"Listener: [], all true, wildcard true"}},
	} {
		old, _ := source.Current()
		h.builder.Set(step.part)
		now, _ := source.Current()
		changes, known := now.Diff(old)
		if diff := cmp.Diff(step.want, reached(changes)); diff != "" || !known {
			t.Errorf("%s: reported (-want +got):\n%s", step.name, diff)
		}
	}
}

// reached lists changes by type: the services and addresses in the names, without ports and families.
func reached(changes map[string]xds.Change) (out []string) {
	name := regexp.MustCompile(`^outbound\|\d+\|\w*\||^(http|tcp|raw)\||:\d+$|\.shop\.svc\.cluster\.local$`)
	for _, typeURL := range types {
		c, of := changes[typeURL], map[string]bool{}
		for n := range c.Names {
			of[name.ReplaceAllString(n, "")] = true
		}
		line := fmt.Sprint(typeURL[strings.LastIndexByte(typeURL, '.')+1:], ": ", slices.Sorted(maps.Keys(of)))
		if _, ok := changes[typeURL]; ok {
			out = append(out, fmt.Sprintf("%s, all %t, wildcard %t", line, c.AllNames, c.Wildcard))
		}
	}
	return out
}

// A slice that names the zone of a node determines the location of the clients on that node.
func TestDiffOfAZoneOfANode(t *testing.T) {
	web := service("web", "web", "10.96.0.1", port(80, mesh.HTTP))
	web.Traffic = mesh.SameZone
	h := newTestMesh(web, pod("web-1", "web", "10.244.0.1"), pod("web-2", "web", "10.244.0.2", func(w *mesh.WorkloadSpec) { w.Zone = "b" }),
		pod("db-1", "db", "10.244.0.4", func(w *mesh.WorkloadSpec) { w.Zone, w.Node = "", "n" }))
	source := resource.New(h)
	p := client(func(p *xds.Proxy) { p.ID, p.ServiceAccount = "sidecar~10.244.0.4~db-1.shop~x", "db" })
	old, _ := source.Current()
	s := slice("other", "10.244.7.1")
	s.Endpoints[0].Node, s.Endpoints[0].Zone = "n", "b"
	h.builder.Set(s)
	now, _ := source.Current()
	changes, _ := now.Diff(old)
	if old.Named(p, xds.EndpointType, web80).Resource.Version == now.Named(p, xds.EndpointType, web80).Resource.Version || !changes[xds.EndpointType].AllNames {
		t.Errorf("reported: %v", changes)
	}
}
