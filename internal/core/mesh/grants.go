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

// A Grant is one pair of a GrantSpec. With these as keys, a look-up costs the same whatever the
// number of grants.
type Grant struct {
	From      GrantFrom
	Namespace string // of the backends
	Service   string // empty: all of the namespace
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

// ResolveBackend decides about a backend of r, for one parent.
//
// A route of Service A may send requests to all services of its own namespace and of A's. The
// client has called into A's namespace already, and a route of the client's own namespace changes
// the calls of that namespace alone (GEP-1294). Elsewhere the owner of the backend decides.
func ResolveBackend(r *RouteSpec, p Parent, to *Backend, granted func(Grant) bool, ports func(service Key) []Port) Resolution {
	if to.Kind != "" {
		return InvalidKind
	}
	if to.Namespace != r.Namespace && to.Namespace != p.Namespace {
		from := r.GrantFrom()
		if !granted(Grant{from, to.Namespace, to.Name}) && !granted(Grant{from, to.Namespace, ""}) {
			return NotPermitted // before it is known whether it exists: a route must not find that out
		}
	}
	for _, port := range ports(to.Service()) {
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
	return ResolveBackend(r, p, to, m.tables.Grants.Get, func(n Key) []Port {
		if s := m.ByName(n.Namespace, n.Name); s != nil && m.Visible(s, r.Namespace) {
			return s.Ports
		}
		return nil
	})
}

// Service returns the key of the Service.
func (b *Backend) Service() Key { return Key{KindService, b.Namespace, b.Name} }

// GrantFrom is what a grant for r is from.
func (r *RouteSpec) GrantFrom() GrantFrom { return GrantFrom{r.kind(), r.Namespace} }
