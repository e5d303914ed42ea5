package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
)

// kind is that of the object.
func (r *RouteSpec) kind() Kind {
	if r.GRPC {
		return KindGRPC
	}
	return KindRoute
}

func (b *Builder) indexRoute(r *RouteSpec, present bool) {
	for _, p := range r.Parents {
		b.routesOf.set(name{p.Namespace, p.Name}, r, present)
	}
	r.EachBackend(func(to *Backend) {
		b.routesTo.set(name{to.Namespace, to.Name}, r, present)
		b.routesInto.set(grant{GrantFrom{r.kind(), r.Namespace}, name{namespace: to.Namespace}}, r, present)
	})
	b.staleRoutes.add(r.Key())
	b.markParents(r)
}

func (b *Builder) markParents(r *RouteSpec) {
	for _, p := range r.Parents {
		n := name{p.Namespace, p.Name}
		if s := b.services[n]; s != nil {
			s.routes = nil
			b.staleServices.add(n)
		}
	}
}

// updateRoute keeps the route as it is in the source.
func (b *Builder) updateRoute(k Key, e *edit[Key, *RouteSpec]) {
	is, _ := b.parts[k].(*RouteSpec)
	switch was := e.old.get(k); {
	case is == nil && was != nil:
		e.delete(k)
	case is != was:
		e.set(k, is)
	}
}

// Route returns the route that is in use: the last valid version of the object; nil if there is
// none.
func (m *Mesh) Route(k Key) *RouteSpec { return m.routes.get(k) }

// EachBackend calls f for each backend of r, also those that get copies of requests.
func (r *RouteSpec) EachBackend(f func(*Backend)) {
	for i := range r.Rules {
		r.Rules[i].EachBackend(f)
	}
}

// EachBackend calls f for each backend of r, also those that get copies of requests.
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

// maxRouteBytes bounds what the routes of one namespace cost for one service, see [Route.bytes]:
// the proxies of all its clients hold them, and compare requests with each.
const maxRouteBytes = 1 << 20

// maxRouteConflicts bounds what is reported of the routes of one namespace for one service.
const maxRouteConflicts = 20

// A routeSet has the routes of a service, and what is wrong with them.
type routeSet struct {
	routes    []Route
	conflicts []Conflict
	excess    []Key // do not fit; sorted

	reported map[string]int // by namespace, how many conflicts there are
}

func (s *routeSet) report(c Conflict) {
	if s.reported[c.Object.Namespace]++; s.reported[c.Object.Namespace] <= maxRouteConflicts {
		s.conflicts = append(s.conflicts, c)
	}
}

// routes returns the routes of a service in the order of precedence: by the namespace of the
// clients, those for all at the end; then GRPCRoutes, then as the Gateway API orders matches, then
// the older, then by name.
func (b *Builder) routes(n name, spec *ServiceSpec) *routeSet {
	specs := slices.SortedFunc(maps.Keys(b.routesOf[n]), func(x, y *RouteSpec) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), compareBool(x.GRPC, y.GRPC))
	})
	out := &routeSet{reported: map[string]int{}}
	bytes := map[string]int{} // by namespace of the routes
	for _, r := range specs {
		if bytes[r.Namespace] > maxRouteBytes { // an older one did not fit
			out.excess = append(out.excess, r.Key())
			continue
		}
		was := len(out.routes)
		for _, p := range r.Parents {
			if (name{p.Namespace, p.Name}) == n {
				b.attach(out, r, p, spec)
			}
		}
		more := 0
		for i := range out.routes[was:] {
			more += out.routes[was+i].bytes()
		}
		if bytes[r.Namespace] += more; bytes[r.Namespace] > maxRouteBytes {
			out.routes, out.excess = out.routes[:was], append(out.excess, r.Key())
			out.report(Conflict{Object: r.Key(), Message: excessMessage(n.namespace, n.name)})
		}
	}
	slices.SortFunc(out.excess, compareKeys)
	slices.SortStableFunc(out.routes, func(x, y Route) int {
		return cmp.Or(compareClients(x.client(), y.client()), compareBool(!x.GRPC, !y.GRPC), CompareMatches(x.firstMatch(), y.firstMatch()))
	})
	out.reportOverridden(n, spec, specs)
	for _, namespace := range slices.Sorted(maps.Keys(out.reported)) {
		if more := out.reported[namespace] - maxRouteConflicts; more > 0 {
			out.conflicts = append(out.conflicts, Conflict{Severity: contract.WarningPrefix, Object: Key{"Namespace", "", namespace},
				Message: fmt.Sprintf("%d more mistakes of its routes for Service %s/%s are not shown", more, n.namespace, n.name)})
		}
	}
	return out
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// reportOverridden reports the HTTPRoutes that are used on none of their ports.
func (out *routeSet) reportOverridden(n name, spec *ServiceSpec, specs []*RouteSpec) {
	s := &Service{Namespace: n.namespace, Ports: spec.ports(), Routes: out.routes}
	for _, r := range specs {
		for _, p := range r.Parents {
			if ports := p.Ports(s); (name{p.Namespace, p.Name}) == n && len(ports) > 0 && len(s.Overridden(r, ports)) == len(ports) {
				out.report(Conflict{Severity: contract.WarningPrefix, Object: r.Key(), Message: OverriddenMessage(s.Namespace, n.name, ports)})
			}
		}
	}
}

// OverriddenMessage says that an HTTPRoute is not used on ports of a service.
func OverriddenMessage(namespace, name string, ports []Port) string {
	var numbers []string
	for _, p := range ports {
		numbers = append(numbers, strconv.Itoa(int(p.Number)))
	}
	return fmt.Sprintf("is not used for port %s of Service %s/%s, for which there is a GRPCRoute", strings.Join(numbers, ", "), namespace, name)
}

func excessMessage(namespace, name string) string {
	return fmt.Sprintf("is ignored for Service %s/%s, and so are the younger ones: with it the routes of this namespace take more than the %d KiB that they may have there; remove some, or split the Service", namespace, name, maxRouteBytes>>10)
}

// client is the namespace of the clients that r is for; empty: all.
func (r *Route) client() string {
	if len(r.Namespaces) == 0 {
		return ""
	}
	return r.Namespaces[0]
}

func compareClients(x, y string) int {
	return cmp.Or(compareBool(x == "", y == ""), cmp.Compare(x, y))
}

// attach adds the rules of r for one parent.
func (b *Builder) attach(out *routeSet, r *RouteSpec, p Parent, spec *ServiceSpec) {
	port, ok := p.port(spec)
	if !ok {
		return
	}
	var clients []string
	if r.Namespace != p.Namespace {
		clients = []string{r.Namespace} // GEP-1294: a consumer's route is for its own namespace
	}
	refused := map[string]bool{}
	host := func(to *Backend) string {
		switch reason := b.resolution(r, p, to); reason {
		case Resolved:
			return b.config.host(to.Namespace, to.Name)
		case NotPermitted, InvalidKind:
			if message := Unresolved(reason, to); !refused[message] {
				refused[message] = true
				out.report(Conflict{Object: r.Key(), Field: "spec.rules", Message: message})
			}
		}
		return ""
	}
	for i, rule := range r.Rules {
		rule.Name = r.Namespace + "/" + r.Name + "/" + cmp.Or(rule.Name, strconv.Itoa(i))
		rule.GRPC, rule.Port, rule.Namespaces = r.GRPC, port, clients
		rule.Filters = resolveFilters(rule.Filters, host)
		rule.Backends = resolveBackends(rule.Backends, host)
		matches := rule.Matches
		if len(matches) == 0 {
			out.routes = append(out.routes, rule)
		}
		for i := range matches {
			rule.Matches = matches[i : i+1 : i+1]
			out.routes = append(out.routes, rule)
		}
	}
}

// Unresolved says what it means that a backend is not [Resolved].
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

// bytes is about what r takes in a proxy's configuration: its texts, and for each part of it a
// share for the rest.
func (r *Route) bytes() int {
	const part = 64
	n := part + len(r.Name)
	text := func(all ...string) {
		for _, t := range all {
			n += len(t)
		}
		n += part
	}
	filters := func(list []Filter) {
		for _, f := range list {
			for _, h := range []*Headers{f.RequestHeaders, f.ResponseHeaders} {
				if h == nil {
					continue
				}
				for _, p := range slices.Concat(h.Set, h.Add) {
					text(p[0], p[1])
				}
				text(h.Remove...)
			}
			if f.Redirect != nil {
				text(f.Redirect.Host)
				text(f.Redirect.Path.texts()...)
			}
			if f.Rewrite != nil {
				text(f.Rewrite.Host)
				text(f.Rewrite.Path.texts()...)
			}
			if f.Mirror != nil {
				text(f.Mirror.Host)
			}
		}
	}
	for _, m := range r.Matches {
		if m.Path != nil {
			text(m.Path.Value)
		}
		if m.Call != nil {
			text(m.Call.Service, m.Call.Method)
		}
		for _, p := range slices.Concat(m.Headers, m.Query) {
			text(p.Name, p.Value)
		}
	}
	filters(r.Filters)
	for _, b := range r.Backends {
		text(b.Name, b.Host)
		filters(b.Filters)
	}
	return n
}

func (c *PathChange) texts() []string {
	switch {
	case c == nil:
		return nil
	case c.Prefix != nil:
		return []string{*c.Prefix}
	}
	return []string{c.Full}
}

// port returns the port that p names, 0 for all; false if the parent does not have it.
func (p Parent) port(spec *ServiceSpec) (number uint16, ok bool) {
	if p.Port == 0 && p.Section == "" {
		return 0, true
	}
	for _, has := range spec.Ports {
		if (p.Port == 0 || p.Port == has.Number) && (p.Section == "" || p.Section == has.Name) {
			return has.Number, true
		}
	}
	return 0, false
}

func resolveBackends(backends []Backend, host func(*Backend) string) []Backend {
	if len(backends) == 0 {
		return nil
	}
	out := slices.Clone(backends)
	for i := range out {
		out[i].Host = host(&out[i])
		out[i].Filters = resolveFilters(out[i].Filters, host)
	}
	return out
}

func resolveFilters(filters []Filter, host func(*Backend) string) []Filter {
	if len(filters) == 0 {
		return nil
	}
	out := slices.Clone(filters)
	for i := range out {
		if m := out[i].Mirror; m != nil {
			to := *m
			to.Host = host(m)
			out[i].Mirror = &to
		}
	}
	return out
}

// pathRank orders kinds of paths. The rank of regular expressions is up to the
// implementation: between the others, so that a rule for all paths does not hide them.
var pathRank = map[TextKind]int{Exact: 3, RegExp: 2, Prefix: 1}

// firstMatch is the match of a route, which has one at most; the zero match has everything.
func (r *Route) firstMatch() Match {
	if len(r.Matches) == 0 {
		return Match{}
	}
	return r.Matches[0]
}

// CompareMatches is the order of the Gateway API's HTTPRouteRule.matches: the exact
// path, the longer prefix, a method, more headers, more query parameters; and of
// GRPCRouteRule.matches: the longer service, the longer method, more headers.
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
		compareBool(a.Method == "", b.Method == ""),
		cmp.Compare(len(b.Headers), len(a.Headers)), cmp.Compare(len(b.Query), len(a.Query)),
	)
}

// RoutesFor returns the routes of s for clients in a namespace on a port, in the order of
// precedence. If that namespace has routes of its own for s, only those count; of routes of
// different kinds, only GRPCRoutes do (both Gateway API, GEP-1294).
func (s *Service) RoutesFor(namespace string, port uint16) []Route {
	if own := s.routesOf(namespace, port); own != nil {
		return own
	}
	return s.routesOf("", port)
}

// routesOf returns those for the clients of a namespace alone, or for all clients.
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

// hasGRPC reports whether those are GRPCRoutes, which come first.
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

// Ports returns the ports of s that p is for.
func (p Parent) Ports(s *Service) []Port {
	var out []Port
	for _, has := range s.Ports {
		if (p.Port == 0 || p.Port == has.Number) && (p.Section == "" || p.Section == has.Name) {
			out = append(out, has)
		}
	}
	return out
}

// Overridden returns those of ports where r is not used, because s has a GRPCRoute for the same
// clients there.
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

// Excess says why r is not used for s although it is valid; empty if it is.
func (s *Service) Excess(r *RouteSpec) string {
	if _, found := slices.BinarySearchFunc(s.RoutesLeftOut, r.Key(), compareKeys); !found {
		return ""
	}
	return excessMessage(s.Namespace, s.Name)
}
