package mesh

import "slices"

// A GrantSpec is a ReferenceGrant: it allows routes in other namespaces to use services in its own namespace
// as backends.
type GrantSpec struct {
	Name, Namespace string
	From            []GrantFrom
	To              []string // names of services; "" means all
}

// A GrantFrom means all routes of one kind in one namespace.
type GrantFrom struct {
	Kind      Kind
	Namespace string
}

// A Grant is one pair of From and To in a GrantSpec. Grants are keys of a map, so the cost of a look-up does
// not depend on their number.
type Grant struct {
	From      GrantFrom
	Namespace string // namespace of the backends
	Service   string // name of the service; empty: all services in the namespace
}

// A Resolution is the reason why a backend cannot be used; empty: it can.
type Resolution string

const (
	Resolved     Resolution = ""
	InvalidKind  Resolution = "InvalidKind"         // the backend is not a Service
	NotPermitted Resolution = "RefNotPermitted"     // a ReferenceGrant is missing
	NotFound     Resolution = "BackendNotFound"     // the Service or the port does not exist
	NotHTTP      Resolution = "UnsupportedProtocol" // the port is not a TCP port
)

// ResolveBackend returns whether r may use a backend for requests to one of its parents. It reads grants and
// the ports of services by the given functions.
//
// A route for a Service in namespace A may send requests to all services in its own namespace and in A. A
// needs no protection, because the client has called into A already. A route in the client's own namespace
// needs none either, because it only changes calls from that namespace (GEP-1294). In all other namespaces
// the owner of the backend decides, by a ReferenceGrant.
func ResolveBackend(r *RouteSpec, p Parent, to *Backend, granted func(Grant) bool, ports func(service Key) []Port) Resolution {
	if to.Kind != "" {
		return InvalidKind
	}
	if to.Namespace != r.Namespace && to.Namespace != p.Namespace {
		from := r.GrantFrom()
		if !granted(Grant{from, to.Namespace, to.Name}) && !granted(Grant{from, to.Namespace, ""}) {
			return NotPermitted // before the check of existence, so that a route cannot find out what exists
		}
	}
	all := ports(to.Service())
	switch {
	case portOfTCP(all, to.Port) != nil:
		return Resolved
	case slices.ContainsFunc(all, func(of Port) bool { return of.Number == to.Port }):
		return NotHTTP
	}
	return NotFound
}

// Resolution returns the resolution of a backend of r for one parent. Services that are not visible to r's
// namespace count as not found, so that their existence is not revealed.
func (m *Mesh) Resolution(r *RouteSpec, p Parent, to *Backend) Resolution {
	return ResolveBackend(r, p, to, m.tables.Grants.Get, func(n Key) []Port {
		if s := m.ByName(n.Namespace, n.Name); s != nil && m.Visible(s, r.Namespace) {
			return s.Ports
		}
		return nil
	})
}

// Service returns the key of the backend's Service.
func (b *Backend) Service() Key { return Key{KindService, b.Namespace, b.Name} }

// GrantFrom returns the value that a grant must contain to allow r.
func (r *RouteSpec) GrantFrom() GrantFrom { return GrantFrom{r.kind(), r.Namespace} }
