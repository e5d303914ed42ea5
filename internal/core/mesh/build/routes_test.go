package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/mesh"
)

func routeNames(m *mesh.Mesh, client string, port uint16) (out []string) {
	for _, r := range m.ByName("shop", "web").RoutesFor(client, port) {
		out = append(out, r.Name)
	}
	return out
}

// If a port has a GRPCRoute, no HTTPRoute is used there for the same clients.
func TestGRPCRoutesComeFirst(t *testing.T) {
	call := func(service, method string, headers int) mesh.Route {
		return mesh.Route{Matches: []mesh.Match{{Call: &mesh.Call{Kind: mesh.Exact, Service: service, Method: method}, Headers: make([]mesh.Pair, headers)}}}
	}
	of := func(namespace, name string, grpc bool, port uint16, rules ...mesh.Route) *mesh.RouteSpec {
		return &mesh.RouteSpec{Namespace: namespace, Name: name, GRPC: grpc, Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Port: port}}, Rules: rules}
	}
	b := New(mesh.Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80), port("grpc", 90)),
		of("shop", "http", false, 0, mesh.Route{}), of("shop", "http90", false, 90, mesh.Route{Name: "named"}),
		of("shop", "grpc", true, 90, mesh.Route{}, call("a", "", 0), call("a.B", "", 0), call("a.B", "C", 0), call("a.B", "C", 1), call("a.B", "Longer", 0)),
		of("pay", "own", false, 90, mesh.Route{}))
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
	want := []Conflict{{"warning: ", mesh.Key{Kind: mesh.KindRoute, Namespace: "shop", Name: "http90"}, "", "is not used for port 90 of Service shop/web, for which there is a GRPCRoute"}}
	if diff := cmp.Diff(want, b.Conflicts()); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	b.Delete(mesh.Key{Kind: mesh.KindGRPC, Namespace: "shop", Name: "grpc"})
	if got, want := routeNames(b.Mesh(), "shop", 90), []string{"shop/http/0", "shop/http90/named"}; !slices.Equal(got, want) || b.Conflicts() != nil {
		t.Errorf("without it %q, want %q; %v", got, want, b.Conflicts())
	}
}

// Routes and grants may arrive in any order. Here a grant arrives after its route;
// TestAnyHistoryMakesTheSameMesh covers other orders.
func TestGrants(t *testing.T) {
	route := func(namespace string, grpc bool) *mesh.RouteSpec {
		return &mesh.RouteSpec{Namespace: namespace, Name: "r", GRPC: grpc, Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}},
			Rules: []mesh.Route{{Backends: []mesh.Backend{{Namespace: "pay", Name: "log", Port: 80, Weight: 1}}}}}
	}
	grant := func(kind mesh.Kind, from string, to ...string) *mesh.GrantSpec {
		return &mesh.GrantSpec{Namespace: "pay", Name: "g", From: []mesh.GrantFrom{{Kind: kind, Namespace: from}}, To: to}
	}
	for name, tt := range map[string]struct {
		route *mesh.RouteSpec
		grant *mesh.GrantSpec
		want  bool
	}{
		"none":                         {route("shop", false), nil, false},
		"of this Service":              {route("shop", false), grant(mesh.KindRoute, "shop", "other", "log"), true},
		"of all Services":              {route("shop", true), grant(mesh.KindGRPC, "shop", ""), true},
		"of another Service":           {route("shop", false), grant(mesh.KindRoute, "shop", "other"), false},
		"of another kind":              {route("shop", false), grant(mesh.KindGRPC, "shop", ""), false},
		"of another namespace":         {route("shop", false), grant(mesh.KindRoute, "bank", ""), false},
		"the route's own namespace":    {route("pay", false), nil, true},
		"a client's, for another's":    {route("bank", false), grant(mesh.KindRoute, "shop", ""), false},
		"a client's, with a grant too": {route("bank", false), grant(mesh.KindRoute, "bank", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			services := []mesh.Part{svc("shop", "web", "10.0.0.1", port("http", 80)), svc("pay", "log", "10.0.0.2", port("http", 80))}
			host := func(m *mesh.Mesh) string { return m.ByName("shop", "web").Routes[0].Backends[0].Host }
			b := New(mesh.Config{})
			b.Set(append(services, tt.route)...)
			b.Mesh()
			if tt.grant != nil {
				b.Set(tt.grant)
			}
			m := b.Mesh()
			if got := host(m) != ""; got != tt.want {
				t.Errorf("used: %t, want %t", got, tt.want)
			}
			if got := m.Resolution(tt.route, tt.route.Parents[0], &tt.route.Rules[0].Backends[0]) == mesh.Resolved; got != tt.want {
				t.Errorf("resolved: %t, want %t", got, tt.want)
			}
			if got := len(b.Conflicts()) == 0; got != tt.want {
				t.Errorf("conflicts %v", b.Conflicts())
			}
		})
	}
}

// The routes of a namespace for one Service are limited. The oldest are used, up to the first that exceeds
// the limit.
func TestRoutesThatDoNotFit(t *testing.T) {
	b := New(mesh.Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)))
	large := mesh.Route{Filters: []mesh.Filter{{Rewrite: &mesh.Rewrite{Path: &mesh.PathChange{Full: "/" + strings.Repeat("x", mesh.MaxRouteBytes/20)}}}}, Matches: make([]mesh.Match, 4)}
	for i := range 8 {
		b.Set(&mesh.RouteSpec{Namespace: []string{"shop", "pay"}[i%2], Name: fmt.Sprint("r", i), Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{large}})
	}
	m := b.Mesh()
	s := m.ByName("shop", "web")
	if n, own := len(s.RoutesFor("shop", 80)), len(s.RoutesFor("pay", 80)); n != 16 || own != 16 {
		t.Errorf("%d routes for all, %d for the namespace pay; want 16", n, own)
	}
	b.Set(&mesh.RouteSpec{Namespace: "pay", Name: "r8", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{large}}, &mesh.RouteSpec{Namespace: "pay", Name: "r9", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{{}}})
	m = b.Mesh()
	s = m.ByName("shop", "web")
	if n, own := len(s.RoutesFor("shop", 80)), len(s.RoutesFor("pay", 80)); n != 16 || own != 16 {
		t.Errorf("later %d routes for all, %d for the namespace pay; want 16", n, own)
	}
	for name, want := range map[string]bool{"r8": true, "r9": true, "r7": false} {
		if got := s.Excess(m.Route(mesh.Key{Kind: mesh.KindRoute, Namespace: "pay", Name: name})); (got != "") != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if c := b.Conflicts(); len(c) != 1 || c[0].Object.Name != "r8" {
		t.Errorf("conflicts %v", c)
	}
}

// If an endpoint changes, the routes of its service are not computed again.
func TestRoutesAreKept(t *testing.T) {
	b := New(mesh.Config{})
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)), &mesh.RouteSpec{Namespace: "shop", Name: "r", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{{}}})
	before := b.Mesh().ByName("shop", "web")
	b.Set(slice("shop", "web-1", "web", mesh.SlicePort{Name: "http", Number: 8080}, "10.1.0.9"))
	after := b.Mesh().ByName("shop", "web")
	if before == after || &before.Routes[0] != &after.Routes[0] {
		t.Errorf("the same service: %t; the routes were made again", before == after)
	}
}

func TestRoutesFor(t *testing.T) {
	match := func(kind mesh.TextKind, path string) mesh.Route {
		return mesh.Route{Matches: []mesh.Match{{Path: &mesh.Text{Kind: kind, Value: path}}}}
	}
	producer := &mesh.RouteSpec{Namespace: "shop", Name: "p", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{
		match(mesh.Prefix, "/api"), {}, match(mesh.Exact, "/api"), match(mesh.RegExp, "/a.*"), match(mesh.Prefix, "/api/v1"),
		{Matches: []mesh.Match{{Method: "GET"}, {Headers: []mesh.Pair{{Name: "a"}}}}},
	}}
	only81 := &mesh.RouteSpec{Namespace: "shop", Name: "q", Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Section: "admin"}}, Rules: []mesh.Route{{}}}
	noPort := &mesh.RouteSpec{Namespace: "shop", Name: "r", Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Port: 99}}, Rules: []mesh.Route{{}}}
	consumer := &mesh.RouteSpec{Namespace: "pay", Name: "c", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{{}}}
	m := Mesh(mesh.Config{}, svc("shop", "web", "10.0.0.1", port("http", 80), port("admin", 81)), producer, only81, noPort, consumer)
	names := func(namespace string, port uint16) []string {
		var out []string
		for _, r := range m.ByName("shop", "web").RoutesFor(namespace, port) {
			out = append(out, r.Name)
		}
		return out
	}
	all := []string{"shop/p/2", "shop/p/3", "shop/p/4", "shop/p/0", "shop/p/5", "shop/p/5", "shop/p/1"}
	for _, tt := range []struct {
		client string
		port   uint16
		want   []string
	}{{"shop", 80, all}, {"shop", 81, append(slices.Clone(all), "shop/q/0")}, {"pay", 80, []string{"pay/c/0"}}} {
		if diff := cmp.Diff(tt.want, names(tt.client, tt.port)); diff != "" {
			t.Errorf("routes for %s on port %d (-want +got):\n%s", tt.client, tt.port, diff)
		}
	}
}

func TestBackends(t *testing.T) {
	to := func(namespace, name string, port uint16) mesh.Backend {
		return mesh.Backend{Namespace: namespace, Name: name, Port: port, Weight: 1}
	}
	b := New(mesh.Config{})
	b.Set(&mesh.GrantSpec{Namespace: "pay", Name: "g", From: []mesh.GrantFrom{{Kind: mesh.KindRoute, Namespace: "shop"}}, To: []string{"log"}})
	mirrored := to("pay", "log", 80)
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)), &mesh.RouteSpec{
		Namespace: "shop", Name: "r", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}},
		Rules: []mesh.Route{{Backends: []mesh.Backend{to("shop", "web", 80), to("shop", "v2", 80), to("shop", "web", 99)}, Filters: []mesh.Filter{{Mirror: &mirrored}}}},
	})
	hosts := func() []string {
		r := b.Mesh().ByName("shop", "web").Routes[0]
		out := []string{r.Filters[0].Mirror.Host}
		for _, b := range r.Backends {
			out = append(out, b.Host)
		}
		return out
	}
	check := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, hosts()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	const web, v2, log = "web.shop.svc.cluster.local", "v2.shop.svc.cluster.local", "log.pay.svc.cluster.local"
	check("at first", "", web, "", "")
	b.Set(svc("shop", "v2", "", port("http", 80)), svc("pay", "log", "", port("http", 80)))
	check("with the services", log, web, v2, "")
	before := b.Mesh().ByName("shop", "web")
	b.Set(slice("shop", "v2-x", "v2", mesh.SlicePort{Name: "http", Number: 8080}, "10.1.0.9"))
	if b.Mesh().ByName("shop", "web") != before {
		t.Error("an endpoint of a backend changed the service whose route leads there")
	}
	b.Delete(mesh.Key{Kind: mesh.KindService, Namespace: "pay", Name: "log"}, mesh.Key{Kind: mesh.KindService, Namespace: "shop", Name: "v2"})
	check("without them", "", web, "", "")
}
