package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxRouteBytes is the maximum size, in bytes, of the routes that one namespace may have for one service. The
// limit is needed because the proxies of all clients of the service store the routes and compare each request
// with them.
const MaxRouteBytes = 1 << 20

// kind returns KindGRPC or KindRoute.
func (r *RouteSpec) kind() Kind {
	if r.GRPC {
		return KindGRPC
	}
	return KindRoute
}

// Route returns the route in use, which is the last valid version of the object; nil if there is none.
func (m *Mesh) Route(k Key) *RouteSpec { return m.tables.Routes.Get(k) }

// EachBackend calls f for each backend of r, including those that get mirrored requests.
func (r *RouteSpec) EachBackend(f func(*Backend)) {
	for i := range r.Rules {
		r.Rules[i].EachBackend(f)
	}
}

// EachBackend calls f for each backend of r, including those that get mirrored requests.
func (r *Route) EachBackend(f func(*Backend)) { eachBackend(r.Backends, r.Filters, f) }

func eachBackend(backends []Backend, filters []Filter, f func(*Backend)) {
	for i := range filters {
		if filters[i].Mirror != nil {
			f(filters[i].Mirror)
		}
	}
	for i := range backends {
		f(&backends[i])
		eachBackend(nil, backends[i].Filters, f)
	}
}

// OverriddenMessage returns the message that an HTTPRoute is not used on ports of a service.
func OverriddenMessage(namespace, name string, ports []Port) string {
	var numbers []string
	for _, p := range ports {
		numbers = append(numbers, strconv.Itoa(int(p.Number)))
	}
	return fmt.Sprintf("is not used for port %s of Service %s/%s, for which there is a GRPCRoute", strings.Join(numbers, ", "), namespace, name)
}

// ExcessMessage returns the message that the routes of a namespace for a service exceed [MaxRouteBytes].
func ExcessMessage(namespace, name string) string {
	return fmt.Sprintf("is ignored for Service %s/%s, and so are the younger ones: with it the routes of this namespace take more than the %d KiB that they may have there; remove some, or split the Service", namespace, name, MaxRouteBytes>>10)
}

// client returns the namespace of the clients to which r applies; empty: r applies to all clients.
func (r *Route) client() string {
	if len(r.Namespaces) == 0 {
		return ""
	}
	return r.Namespaces[0]
}

// CompareRoutes defines the order of precedence: first by the namespace of the clients, with routes for all
// clients last; then GRPCRoutes before HTTPRoutes; then the Gateway API's order of matches.
func CompareRoutes(x, y Route) int {
	return cmp.Or(compareClients(x.client(), y.client()), CompareBool(!x.GRPC, !y.GRPC), CompareMatches(x.firstMatch(), y.firstMatch()))
}

func compareClients(x, y string) int {
	return cmp.Or(CompareBool(x == "", y == ""), cmp.Compare(x, y))
}

// Unresolved returns the message about a backend that is not [Resolved], for the given reason.
func Unresolved(reason Resolution, to *Backend) string {
	switch reason {
	case InvalidKind:
		return fmt.Sprintf("the kind of the backend %s is not supported: must be Service; its requests get an error", to.Kind)
	case NotPermitted:
		return fmt.Sprintf("the backend Service %s/%s needs a ReferenceGrant in its namespace; until then its requests get an error", to.Namespace, to.Name)
	case NotHTTP:
		return fmt.Sprintf("the port %d of Service %s/%s is not one of TCP", to.Port, to.Namespace, to.Name)
	}
	return fmt.Sprintf("there is no Service %s/%s with the port %d", to.Namespace, to.Name, to.Port)
}

// pathRank orders kinds of paths. The Gateway API does not define the rank of regular expressions. Here they
// come before prefixes, so that a rule for all paths does not hide them.
var pathRank = map[TextKind]int{Exact: 3, RegExp: 2, Prefix: 1}

// firstMatch returns the only match of a route. If there is none, it returns the zero match, which matches
// everything.
func (r *Route) firstMatch() Match {
	if len(r.Matches) == 0 {
		return Match{}
	}
	return r.Matches[0]
}

// CompareMatches defines the order of precedence of matches. An HTTPRoute has the order of
// HTTPRouteRule.matches: an exact path, a longer prefix, a method, more headers, more query parameters. A
// GRPCRoute has the order of GRPCRouteRule.matches: a longer service, a longer method, more headers.
func CompareMatches(a, b Match) int {
	rank := func(m Match) (kind, length int) {
		if m.Path == nil {
			return pathRank[Prefix], 1 // the default is the prefix /
		}
		return pathRank[m.Path.Kind], len(m.Path.Value)
	}
	kindA, lenA := rank(a)
	kindB, lenB := rank(b)
	var callA, callB Call
	if a.Call != nil {
		callA = *a.Call
	}
	if b.Call != nil {
		callB = *b.Call
	}
	return cmp.Or(
		cmp.Compare(len(callB.Service), len(callA.Service)), cmp.Compare(len(callB.Method), len(callA.Method)),
		cmp.Compare(kindB, kindA), cmp.Compare(lenB, lenA),
		CompareBool(a.Method == "", b.Method == ""),
		cmp.Compare(len(b.Headers), len(a.Headers)), cmp.Compare(len(b.Query), len(a.Query)),
	)
}

// RoutesFor returns the routes of s for clients in a namespace on a port, in order of precedence. If that
// namespace has its own routes for s, only those are used. If there are routes of both kinds, only the
// GRPCRoutes are used. The Gateway API defines both rules (GEP-1294).
func (s *Service) RoutesFor(namespace string, port uint16) []Route {
	if own := s.routesOf(namespace, port); own != nil {
		return own
	}
	return s.routesOf("", port)
}

// routesOf returns the routes of s for one value of [Route.client]: those for one namespace, or those for all
// clients.
func (s *Service) routesOf(client string, port uint16) []Route {
	first, _ := slices.BinarySearchFunc(s.Routes, client, func(r Route, c string) int { return compareClients(r.client(), c) })
	var out []Route
	for i := range s.Routes[first:] {
		r := &s.Routes[first+i]
		if r.client() != client || !r.GRPC && len(out) > 0 && out[0].GRPC {
			break
		}
		if r.Port == 0 || r.Port == port {
			out = append(out, *r)
		}
	}
	return out
}

// hasGRPC reports whether the routes for a client on a port include GRPCRoutes, which take precedence.
func (s *Service) hasGRPC(client string, port uint16) bool {
	first, _ := slices.BinarySearchFunc(s.Routes, client, func(r Route, c string) int { return compareClients(r.client(), c) })
	for i := range s.Routes[first:] {
		r := &s.Routes[first+i]
		if r.client() != client || !r.GRPC {
			return false
		}
		if r.Port == 0 || r.Port == port {
			return true
		}
	}
	return false
}

// Ports returns those ports of s to which the parent reference p refers, of whatever transport.
func (p Parent) Ports(s *Service) []Port {
	var out []Port
	for _, has := range s.Ports {
		if (p.Port == 0 || p.Port == has.Number) && (p.Section == "" || p.Section == has.Name) {
			out = append(out, has)
		}
	}
	return out
}

// Overridden returns those of the given ports on which r is not used, because s has a GRPCRoute there for the
// same clients.
func (s *Service) Overridden(r *RouteSpec, ports []Port) []Port {
	if r.GRPC {
		return nil
	}
	client := ""
	if r.Namespace != s.Namespace {
		client = r.Namespace
	}
	var out []Port
	for _, p := range ports {
		if s.hasGRPC(client, p.Number) {
			out = append(out, p)
		}
	}
	return out
}

// Excess returns the message why s does not use r although r is valid; empty: s uses it.
func (s *Service) Excess(r *RouteSpec) string {
	if _, found := slices.BinarySearchFunc(s.RoutesLeftOut, r.Key(), Key.Compare); !found {
		return ""
	}
	return ExcessMessage(s.Namespace, s.Name)
}
