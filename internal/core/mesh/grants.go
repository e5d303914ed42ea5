package mesh

// A GrantSpec is a ReferenceGrant: routes of other namespaces may have services of its
// namespace as backends.
type GrantSpec struct {
	Name, Namespace string
	From            []GrantFrom
	To              []string // names of services; "": all
}

// GrantFrom are the routes of one kind in one namespace.
type GrantFrom struct {
	Kind      Kind
	Namespace string
}

// A grant is one pair of a GrantSpec. With these as keys, a look-up costs the same whatever the
// number of grants.
type grant struct {
	from GrantFrom
	to   name // without a name: all services of the namespace
}

func (b *Builder) indexGrant(g *GrantSpec, present bool) {
	for _, from := range g.From {
		for _, to := range g.To {
			k := grant{from, name{g.Namespace, to}}
			b.grants.set(k, g, present)
			b.staleGrants.add(k)
		}
		for r := range b.routesInto[grant{from, name{namespace: g.Namespace}}] {
			b.markParents(r)
		}
	}
}

// updateGrant computes a grant again.
func (b *Builder) updateGrant(k grant, e *edit[grant, bool]) {
	switch is, was := len(b.grants[k]) > 0, e.old.get(k); {
	case is && !was:
		e.set(k, true)
	case !is && was:
		e.delete(k)
	}
}

// A Resolution says whether a backend is used, or why it is not.
type Resolution string

const (
	Resolved     Resolution = ""
	InvalidKind  Resolution = "InvalidKind"         // it is not a Service
	NotPermitted Resolution = "RefNotPermitted"     // it needs a ReferenceGrant
	NotFound     Resolution = "BackendNotFound"     // there is no such Service or port
	NotHTTP      Resolution = "UnsupportedProtocol" // the port is not one of TCP
)

// resolve decides about a backend of r, for one parent.
//
// A route of Service A may send requests to all services of its own namespace and of A's. The
// client has called into A's namespace already, and a route of the client's own namespace changes
// the calls of that namespace alone (GEP-1294). Elsewhere the owner of the backend decides.
func resolve(r *RouteSpec, p Parent, to *Backend, granted func(grant) bool, ports func(name) []Port) Resolution {
	if to.Kind != "" {
		return InvalidKind
	}
	if to.Namespace != r.Namespace && to.Namespace != p.Namespace {
		from := GrantFrom{r.kind(), r.Namespace}
		if !granted(grant{from, name{to.Namespace, to.Name}}) && !granted(grant{from, name{namespace: to.Namespace}}) {
			return NotPermitted // before it is known whether it exists: a route must not find that out
		}
	}
	for _, port := range ports(name{to.Namespace, to.Name}) {
		switch {
		case port.Number == to.Port && port.Protocol == UDP:
			return NotHTTP
		case port.Number == to.Port:
			return Resolved
		}
	}
	return NotFound
}

// Resolution returns whether a backend of r is used for one parent of r, as the namespace of r may
// know it.
func (m *Mesh) Resolution(r *RouteSpec, p Parent, to *Backend) Resolution {
	return resolve(r, p, to, m.grants.get, func(n name) []Port {
		if s := m.ByName(n.namespace, n.name); s != nil && m.Visible(s, r.Namespace) {
			return s.Ports
		}
		return nil
	})
}

// resolution is the same while a mesh is built.
func (b *Builder) resolution(r *RouteSpec, p Parent, to *Backend) Resolution {
	granted := func(k grant) bool { return len(b.grants[k]) > 0 }
	return resolve(r, p, to, granted, func(n name) []Port {
		if s := b.services[n]; s != nil && s.spec != nil {
			return s.spec.ports()
		}
		return nil
	})
}
