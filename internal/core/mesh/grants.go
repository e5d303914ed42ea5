package mesh

// A GrantSpec is a ReferenceGrant: it allows routes in other namespaces to use services in its
// namespace as backends.
type GrantSpec struct {
	Name, Namespace string
	From            []GrantFrom
	To              []string // names of services; "" stands for all
}

// GrantFrom stands for the routes of one kind in one namespace.
type GrantFrom struct {
	Kind      Kind
	Namespace string
}

// A Grant is one pair in a GrantSpec. With grants as keys of a map, the cost of a look-up does not
// depend on their number.
type Grant struct {
	From      GrantFrom
	Namespace string // of the backends
	Service   string // empty: all in the namespace
}

// A Resolution says whether a backend is used, or why not.
type Resolution string

const (
	Resolved     Resolution = ""
	InvalidKind  Resolution = "InvalidKind"         // the backend is not a Service
	NotPermitted Resolution = "RefNotPermitted"     // a ReferenceGrant is missing
	NotFound     Resolution = "BackendNotFound"     // the Service or the port does not exist
	NotHTTP      Resolution = "UnsupportedProtocol" // the port is not a TCP port
)

// ResolveBackend decides whether r, for one parent, may use a backend.
//
// A route for a Service in namespace A may send requests to all services in its own namespace and in A.
// The client has called into A already, and a route in the client's own namespace only changes calls
// from that namespace (GEP-1294). For backends elsewhere the owner decides, by a ReferenceGrant.
func ResolveBackend(r *RouteSpec, p Parent, to *Backend, granted func(Grant) bool, ports func(service Key) []Port) Resolution {
	if to.Kind != "" {
		return InvalidKind
	}
	if to.Namespace != r.Namespace && to.Namespace != p.Namespace {
		from := r.GrantFrom()
		if !granted(Grant{from, to.Namespace, to.Name}) && !granted(Grant{from, to.Namespace, ""}) {
			return NotPermitted // decided before existence, so that a route cannot find out what exists
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

// Resolution returns the resolution of a backend of r for one parent. It reveals no more than the
// namespace of r may know.
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

// GrantFrom returns the source that a grant must name to allow r.
func (r *RouteSpec) GrantFrom() GrantFrom { return GrantFrom{r.kind(), r.Namespace} }
