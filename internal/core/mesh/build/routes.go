package build

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// routes contains the HTTPRoutes and GRPCRoutes, by the services to which they refer.
type routes struct {
	ofParent multimap[mesh.Key, *mesh.RouteSpec]
	toName   multimap[mesh.Key, *mesh.RouteSpec]   // routes by the service of a backend
	toSpace  multimap[mesh.Grant, *mesh.RouteSpec] // routes by the grant for all services in the namespace of a backend
	table    persistent.Table[mesh.Key, *mesh.RouteSpec]
	stale    set[mesh.Key]
}

func (x *routes) set(r *mesh.RouteSpec, present bool) {
	for _, p := range r.Parents {
		x.ofParent.set(p.Service(), r, present)
	}
	r.EachBackend(func(to *mesh.Backend) {
		x.toName.set(to.Service(), r, present)
		x.toSpace.set(mesh.Grant{From: r.GrantFrom(), Namespace: to.Namespace}, r, present)
	})
	x.stale.add(r.Key())
}

func (x *routes) to(service mesh.Key) set[*mesh.RouteSpec] { return x.toName[service] }

// into returns the routes that a grant's From selects and that have a backend in the given namespace.
func (x *routes) into(from mesh.GrantFrom, namespace string) set[*mesh.RouteSpec] {
	return x.toSpace[mesh.Grant{From: from, Namespace: namespace}]
}

// maxRouteConflicts is the maximum number of reports about one namespace's routes for one service.
const maxRouteConflicts = 20

// A routeSet contains the routes of a service, and the reports about them.
type routeSet struct {
	routes    []mesh.Route
	conflicts []Conflict
	excess    []mesh.Key // routes that exceed [mesh.MaxRouteBytes]; sorted

	// number of reports by the namespace of the routes
	reported map[string]int
}

func (s *routeSet) report(c Conflict) {
	if s.reported[c.Object.Namespace]++; s.reported[c.Object.Namespace] <= maxRouteConflicts {
		s.conflicts = append(s.conflicts, c)
	}
}

// routesOf returns the routes of a service in order of precedence: first by the namespace of the clients,
// with routes for all clients last; then GRPCRoutes before HTTPRoutes; then in the Gateway API's order of
// matches; then by age; then by name.
func (b *Builder) routesOf(spec *mesh.ServiceSpec) *routeSet {
	n := spec.Key()
	s := &mesh.Service{Namespace: spec.Namespace, Name: spec.Name, Ports: spec.ServicePorts()}
	specs := slices.SortedFunc(maps.Keys(b.routes.ofParent[n]), func(x, y *mesh.RouteSpec) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), mesh.CompareBool(x.GRPC, y.GRPC))
	})
	out := &routeSet{reported: map[string]int{}}
	bytes := map[string]int{} // size of the routes, by their namespace
	for _, r := range specs {
		if bytes[r.Namespace] > mesh.MaxRouteBytes { // an older route exceeded the limit
			out.excess = append(out.excess, r.Key())
			continue
		}
		was := len(out.routes)
		for _, p := range r.Parents {
			if p.Service() == n {
				b.attach(out, r, p, s)
			}
		}
		more := 0
		for i := range out.routes[was:] {
			more += bytesOf(&out.routes[was+i])
		}
		if bytes[r.Namespace] += more; bytes[r.Namespace] > mesh.MaxRouteBytes {
			out.routes, out.excess = out.routes[:was], append(out.excess, r.Key())
			out.report(Conflict{Object: r.Key(), Message: mesh.ExcessMessage(n.Namespace, n.Name)})
		}
	}
	slices.SortFunc(out.excess, mesh.Key.Compare)
	slices.SortStableFunc(out.routes, mesh.CompareRoutes)
	s.Routes = out.routes
	out.reportOverridden(s, specs)
	for _, namespace := range slices.Sorted(maps.Keys(out.reported)) {
		if more := out.reported[namespace] - maxRouteConflicts; more > 0 {
			out.conflicts = append(out.conflicts, Conflict{Severity: contract.WarningPrefix, Object: mesh.Key{Kind: "Namespace", Name: namespace},
				Message: fmt.Sprintf("%d more mistakes of its routes for Service %s/%s are not shown", more, n.Namespace, n.Name)})
		}
	}
	return out
}

// reportOverridden reports HTTPRoutes for which GRPCRoutes are used on all of their ports.
func (out *routeSet) reportOverridden(s *mesh.Service, specs []*mesh.RouteSpec) {
	for _, r := range specs {
		for _, p := range r.Parents {
			if ports := mesh.Captured(p.Ports(s)); p.Namespace == s.Namespace && p.Name == s.Name && len(ports) > 0 && len(s.Overridden(r, ports)) == len(ports) {
				out.report(Conflict{Severity: contract.WarningPrefix, Object: r.Key(), Message: mesh.OverriddenMessage(s.Namespace, s.Name, ports)})
			}
		}
	}
}

// attach adds the rules of r to the routes of s, for one of r's parents.
func (b *Builder) attach(out *routeSet, r *mesh.RouteSpec, p mesh.Parent, s *mesh.Service) {
	var port uint16 // 0: all
	if p.Port != 0 || p.Section != "" {
		named := mesh.Captured(p.Ports(s))
		if len(named) == 0 {
			return
		}
		port = named[0].Number
	}
	var clients []string
	if r.Namespace != p.Namespace {
		clients = []string{r.Namespace} // GEP-1294: a consumer's route applies only to clients in its own namespace
	}
	refused := map[string]bool{}
	host := func(to *mesh.Backend) string {
		switch reason := mesh.ResolveBackend(r, p, to, b.grants.has, b.portsOf); reason {
		case mesh.Resolved:
			return b.config.Host(to.Namespace, to.Name)
		case mesh.NotPermitted, mesh.InvalidKind:
			if message := mesh.Unresolved(reason, to); !refused[message] {
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

// portsOf returns the ports of a service; none if there is no such service.
func (b *Builder) portsOf(service mesh.Key) []mesh.Port {
	if spec := b.services.spec(service); spec != nil {
		return spec.ServicePorts()
	}
	return nil
}

// bytesOf estimates the size of r in a proxy's configuration. It adds the lengths of all texts and a fixed
// number for each part.
func bytesOf(r *mesh.Route) int {
	const part = 64
	n := part + len(r.Name)
	text := func(all ...string) {
		for _, t := range all {
			n += len(t)
		}
		n += part
	}
	filters := func(list []mesh.Filter) {
		for _, f := range list {
			for _, h := range []*mesh.Headers{f.RequestHeaders, f.ResponseHeaders} {
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
				text(textsOf(f.Redirect.Path)...)
			}
			if f.Rewrite != nil {
				text(f.Rewrite.Host)
				text(textsOf(f.Rewrite.Path)...)
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

func textsOf(c *mesh.PathChange) []string {
	switch {
	case c == nil:
		return nil
	case c.Prefix != nil:
		return []string{*c.Prefix}
	}
	return []string{c.Full}
}

func resolveBackends(backends []mesh.Backend, host func(*mesh.Backend) string) []mesh.Backend {
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

func resolveFilters(filters []mesh.Filter, host func(*mesh.Backend) string) []mesh.Filter {
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
