package mesh

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

func (b *Builder) indexRoute(r *RouteSpec, present bool) {
	for _, p := range r.Parents {
		b.routesOf.set(name{p.Namespace, p.Name}, r, present)
	}
	r.eachBackend(func(n name) { b.routesTo.set(n, r, present) })
	b.markParents(r)
}

func (b *Builder) markParents(r *RouteSpec) {
	for _, p := range r.Parents {
		n := name{p.Namespace, p.Name}
		if b.services[n] != nil {
			b.staleServices.add(n)
		}
	}
}

func (r *RouteSpec) eachBackend(f func(name)) {
	for i := range r.Rules {
		eachBackend(r.Rules[i].Backends, r.Rules[i].Filters, func(to *Backend) { f(name{to.Namespace, to.Name}) })
	}
}

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

// routes returns the routes of a service in the order of precedence: those of a client's
// own namespace first, then as the Gateway API orders matches, then the older, then by
// name.
func (b *Builder) routes(n name, spec *ServiceSpec) []Route {
	specs := slices.SortedFunc(maps.Keys(b.routesOf[n]), func(x, y *RouteSpec) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	var out []Route
	for _, r := range specs {
		for _, p := range r.Parents {
			if (name{p.Namespace, p.Name}) == n {
				out = b.attach(out, r, p, spec)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y Route) int {
		return cmp.Or(compareBool(len(x.Namespaces) == 0, len(y.Namespaces) == 0), compareMatches(x.Matches, y.Matches))
	})
	return out
}

// attach adds the rules of r for one parent.
func (b *Builder) attach(out []Route, r *RouteSpec, p Parent, spec *ServiceSpec) []Route {
	port, ok := p.port(spec)
	if !ok {
		return out
	}
	var clients []string
	if r.Namespace != p.Namespace {
		clients = []string{r.Namespace} // GEP-1294: a consumer's route is for its own namespace
	}
	for i, rule := range r.Rules {
		rule.Name = r.Namespace + "/" + r.Name + "/" + strconv.Itoa(i)
		rule.Port, rule.Namespaces = port, clients
		rule.Filters = b.resolveFilters(rule.Filters)
		rule.Backends = b.resolveBackends(rule.Backends)
		matches := rule.Matches
		if len(matches) == 0 {
			out = append(out, rule)
		}
		for i := range matches {
			rule.Matches = matches[i : i+1 : i+1]
			out = append(out, rule)
		}
	}
	return out
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

func (b *Builder) resolveBackends(backends []Backend) []Backend {
	if len(backends) == 0 {
		return nil
	}
	out := slices.Clone(backends)
	for i := range out {
		out[i].Host = b.backendHost(&out[i])
		out[i].Filters = b.resolveFilters(out[i].Filters)
	}
	return out
}

func (b *Builder) resolveFilters(filters []Filter) []Filter {
	if len(filters) == 0 {
		return nil
	}
	out := slices.Clone(filters)
	for i := range out {
		if m := out[i].Mirror; m != nil {
			to := *m
			to.Host = b.backendHost(m)
			out[i].Mirror = &to
		}
	}
	return out
}

// backendHost is empty if there is no such service or port. Another namespace needs no
// ReferenceGrant, as in Istio: in a mesh a route redirects only the traffic of clients that
// could call the other service themselves.
func (b *Builder) backendHost(to *Backend) string {
	s := b.services[name{to.Namespace, to.Name}]
	if s == nil || s.spec == nil || !slices.ContainsFunc(s.spec.Ports, func(p PortSpec) bool { return p.Number == to.Port }) {
		return ""
	}
	return b.config.host(to.Namespace, to.Name)
}

// pathRank orders kinds of paths. The rank of regular expressions is up to the
// implementation: between the others, so that a rule for all paths does not hide them.
var pathRank = map[TextKind]int{Exact: 3, RegExp: 2, Prefix: 1}

// compareMatches is the order of the Gateway API's HTTPRouteRule.matches: the exact
// path, the longer prefix, a method, more headers, more query parameters.
func compareMatches(x, y []Match) int {
	var a, b Match
	if len(x) > 0 {
		a = x[0]
	}
	if len(y) > 0 {
		b = y[0]
	}
	rank := func(m Match) (kind, length int) {
		if m.Path == nil {
			return pathRank[Prefix], 1 // the default is the prefix /
		}
		return pathRank[m.Path.Kind], len(m.Path.Value)
	}
	kindA, lenA := rank(a)
	kindB, lenB := rank(b)
	return cmp.Or(
		cmp.Compare(kindB, kindA), cmp.Compare(lenB, lenA),
		compareBool(a.Method == "", b.Method == ""),
		cmp.Compare(len(b.Headers), len(a.Headers)), cmp.Compare(len(b.Query), len(a.Query)),
	)
}

// RoutesFor returns the routes of s for clients in a namespace on a port, in the order of
// precedence. If that namespace has routes of its own for s, only those count (Gateway
// API, GEP-1294).
func (s *Service) RoutesFor(namespace string, port uint16) []Route {
	var own, all []Route
	for _, r := range s.Routes {
		switch {
		case r.Port != 0 && r.Port != port:
		case len(r.Namespaces) == 0:
			all = append(all, r)
		case slices.Contains(r.Namespaces, namespace):
			own = append(own, r)
		}
	}
	if own != nil {
		return own
	}
	return all
}
