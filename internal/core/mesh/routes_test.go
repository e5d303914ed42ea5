package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func routeNames(m *Mesh, client string, port uint16) (out []string) {
	for _, r := range m.ByName("shop", "web").RoutesFor(client, port) {
		out = append(out, r.Name)
	}
	return out
}

// On a port with a GRPCRoute no HTTPRoute is used, for the same clients.
func TestGRPCRoutesComeFirst(t *testing.T) {
	call := func(service, method string, headers int) Route {
		return Route{Matches: []Match{{Call: &Call{Exact, service, method}, Headers: make([]Pair, headers)}}}
	}
	of := func(namespace, name string, grpc bool, port uint16, rules ...Route) *RouteSpec {
		return &RouteSpec{Namespace: namespace, Name: name, GRPC: grpc, Parents: []Parent{{Namespace: "shop", Name: "web", Port: port}}, Rules: rules}
	}
	b := NewBuilder(Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80), port("grpc", 90)),
		of("shop", "http", false, 0, Route{}), of("shop", "http90", false, 90, Route{Name: "named"}),
		of("shop", "grpc", true, 90, Route{}, call("a", "", 0), call("a.B", "", 0), call("a.B", "C", 0), call("a.B", "C", 1), call("a.B", "Longer", 0)),
		of("pay", "own", false, 90, Route{}))
	m := b.Mesh()
	for _, tt := range []struct {
		client string
		port   uint16
		want   []string
	}{
		{"shop", 80, []string{"shop/http/0"}},
		{"shop", 90, []string{"shop/grpc/5", "shop/grpc/4", "shop/grpc/3", "shop/grpc/2", "shop/grpc/1", "shop/grpc/0"}},
		{"pay", 80, []string{"shop/http/0"}},
		{"pay", 90, []string{"pay/own/0"}},
	} {
		if diff := cmp.Diff(tt.want, routeNames(m, tt.client, tt.port)); diff != "" {
			t.Errorf("for %s on port %d (-want +got):\n%s", tt.client, tt.port, diff)
		}
	}
	want := []Conflict{{"warning: ", Key{KindRoute, "shop", "http90"}, "", "is not used for port 90 of Service shop/web, for which there is a GRPCRoute"}}
	if diff := cmp.Diff(want, b.Conflicts()); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	b.Delete(Key{KindGRPC, "shop", "grpc"})
	if got, want := routeNames(b.Mesh(), "shop", 90), []string{"shop/http/0", "shop/http90/named"}; !slices.Equal(got, want) || b.Conflicts() != nil {
		t.Errorf("without it %q, want %q; %v", got, want, b.Conflicts())
	}
}

// A grant may come and go, before the route and after it.
func TestGrants(t *testing.T) {
	route := func(namespace string, grpc bool) *RouteSpec {
		return &RouteSpec{Namespace: namespace, Name: "r", GRPC: grpc, Parents: []Parent{{Namespace: "shop", Name: "web"}},
			Rules: []Route{{Backends: []Backend{{Namespace: "pay", Name: "log", Port: 80, Weight: 1}}}}}
	}
	grant := func(kind Kind, from string, to ...string) *GrantSpec {
		return &GrantSpec{Namespace: "pay", Name: "g", From: []GrantFrom{{kind, from}}, To: to}
	}
	for name, tt := range map[string]struct {
		route *RouteSpec
		grant *GrantSpec
		want  bool
	}{
		"none":                         {route("shop", false), nil, false},
		"of this Service":              {route("shop", false), grant(KindRoute, "shop", "other", "log"), true},
		"of all Services":              {route("shop", true), grant(KindGRPC, "shop", ""), true},
		"of another Service":           {route("shop", false), grant(KindRoute, "shop", "other"), false},
		"of another kind":              {route("shop", false), grant(KindGRPC, "shop", ""), false},
		"of another namespace":         {route("shop", false), grant(KindRoute, "bank", ""), false},
		"the route's own namespace":    {route("pay", false), nil, true},
		"a client's, for another's":    {route("bank", false), grant(KindRoute, "shop", ""), false},
		"a client's, with a grant too": {route("bank", false), grant(KindRoute, "bank", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			services := []Part{svc("shop", "web", "10.0.0.1", port("http", 80)), svc("pay", "log", "10.0.0.2", port("http", 80))}
			host := func(m *Mesh) string { return m.ByName("shop", "web").Routes[0].Backends[0].Host }
			b := NewBuilder(Config{})
			b.Set(append(services, tt.route)...)
			without := host(b.Mesh())
			if tt.grant != nil {
				b.Set(tt.grant)
			}
			m := b.Mesh()
			if got := host(m) != ""; got != tt.want {
				t.Errorf("used: %t, want %t", got, tt.want)
			}
			if got := m.Resolution(tt.route, tt.route.Parents[0], &tt.route.Rules[0].Backends[0]) == Resolved; got != tt.want {
				t.Errorf("resolved: %t, want %t", got, tt.want)
			}
			if got := len(b.Conflicts()) == 0; got != tt.want {
				t.Errorf("conflicts %v", b.Conflicts())
			}
			b.Delete(Key{KindGrant, "pay", "g"})
			if got := host(b.Mesh()); got != without {
				t.Errorf("%q once the grant is gone, was %q before it", got, without)
			}
			first := NewBuilder(Config{})
			if tt.grant != nil {
				first.Set(tt.grant)
			}
			first.Set(append(services, tt.route)...)
			if got := host(first.Mesh()) != ""; got != tt.want {
				t.Errorf("with the grant first: used: %t, want %t", got, tt.want)
			}
		})
	}
}

// A namespace has so much of a Service's routes and no more: the older count, up to the first that
// does not fit.
func TestRoutesThatDoNotFit(t *testing.T) {
	b := NewBuilder(Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)))
	large := Route{Filters: []Filter{{Rewrite: &Rewrite{Path: &PathChange{Full: "/" + strings.Repeat("x", maxRouteBytes/20)}}}}, Matches: make([]Match, 4)}
	for i := range 8 {
		b.Set(&RouteSpec{Namespace: []string{"shop", "pay"}[i%2], Name: fmt.Sprint("r", i), Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{large}})
	}
	m := b.Mesh()
	s := m.ByName("shop", "web")
	if n, own := len(s.RoutesFor("shop", 80)), len(s.RoutesFor("pay", 80)); n != 16 || own != 16 {
		t.Errorf("%d routes for all, %d for the namespace pay; want 16", n, own)
	}
	b.Set(&RouteSpec{Namespace: "pay", Name: "r8", Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{large}}, &RouteSpec{Namespace: "pay", Name: "r9", Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{{}}})
	m = b.Mesh()
	s = m.ByName("shop", "web")
	if n, own := len(s.RoutesFor("shop", 80)), len(s.RoutesFor("pay", 80)); n != 16 || own != 16 {
		t.Errorf("later %d routes for all, %d for the namespace pay; want 16", n, own)
	}
	for key, want := range map[Key]bool{{KindRoute, "pay", "r8"}: true, {KindRoute, "pay", "r9"}: true, {KindRoute, "pay", "r7"}: false} {
		if got := s.Excess(m.Route(key)); (got != "") != want {
			t.Errorf("%v: %q", key, got)
		}
	}
	if c := b.Conflicts(); len(c) != 1 || c[0].Object.Name != "r8" {
		t.Errorf("conflicts %v", c)
	}
}

// A change of an endpoint does not cost what all the routes of its service do.
func TestRoutesAreKept(t *testing.T) {
	b := NewBuilder(Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)), &RouteSpec{Namespace: "shop", Name: "r", Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{{}}})
	before := b.Mesh().ByName("shop", "web")
	b.Set(slice("shop", "web-1", "web", SlicePort{"http", 8080}, "10.1.0.9"))
	after := b.Mesh().ByName("shop", "web")
	if before == after || &before.Routes[0] != &after.Routes[0] {
		t.Errorf("the same service: %t; the routes were made again", before == after)
	}
}
