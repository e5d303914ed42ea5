package resource

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// A builder builds resources. What it builds depends on what it is given, and on what is
// fixed for the life of a control plane.
type builder struct {
	config   mesh.Config
	patience time.Duration // how long a proxy waits for the control plane
}

// A view is one snapshot of the mesh.
type view struct {
	builder
	mesh   *mesh.Mesh
	number uint64
	ports  *ports
	kept   *cabinet
	hosts  drawer // those of a port number, by namespace
	asked  *asked // by all views of a source
}

var views atomic.Uint64

func newView(m *mesh.Mesh, patience time.Duration, last *view) *view {
	v := &view{builder: builder{m.Config, patience}, mesh: m, number: views.Add(1)}
	if last == nil {
		v.kept, v.ports, v.asked = (*cabinet)(nil).heir(m), countPorts(m.Services()), &asked{}
		return v
	}
	v.kept, v.asked = last.kept.heir(m), last.asked
	changed, _ := mesh.Changed(last.mesh, m)
	v.ports = last.ports.after(changed)
	return v
}

// Version counts the views of this process.
func (v *view) Version() string { return strconv.FormatUint(v.number, 10) }

// All returns what p is told of a type without a name.
func (v *view) Wildcard(p *xds.Proxy, typeURL string, wanted []string) []xds.Bundle {
	if !p.OnDemand {
		return v.everything(p, typeURL)
	}
	switch typeURL {
	case xds.ListenerType:
		return answers(append(v.listeners(p), v.fixed(routed, "inner", func() proto.Message { return v.inner() })))
	case xds.ClusterType:
		out := answers([]*xds.Resource{v.app()})
		for _, name := range append(v.prewarmed(p), wanted...) {
			if a := v.cluster(p, name); a.Resource != nil {
				out = append(out, a)
			}
		}
		return out
	case xds.VirtualHostType:
		return answers([]*xds.Resource{v.firstHost()})
	}
	return nil
}

// Named returns what p is told of one name.
func (v *view) Named(p *xds.Proxy, typeURL, name string) xds.Bundle {
	switch typeURL {
	case xds.ClusterType:
		return v.cluster(p, name)
	case xds.EndpointType:
		return xds.Bundle{Resource: v.endpointsNamed(p, name)}
	case xds.VirtualHostType:
		return v.host(p, name)
	case xds.RouteType:
		return v.routes(p, name)
	case xds.ListenerType:
		return xds.Bundle{Resource: v.listener(p, name)}
	}
	return xds.Bundle{}
}

func answers(list []*xds.Resource) []xds.Bundle {
	var out []xds.Bundle
	for _, r := range list {
		if r != nil {
			out = append(out, xds.Bundle{Resource: r})
		}
	}
	return out
}

// fixed returns a resource that goes with no object of the mesh. The key holds all that
// it depends on.
func (v *view) fixed(name string, key any, build func() proto.Message) *xds.Resource {
	return v.kept.rest.get(key, func() *xds.Resource { return seal(name, build()) })
}

// app is the cluster of the application.
func (v *view) app() *xds.Resource {
	return v.fixed(toApp, "app", func() proto.Message { return application() })
}

// firstHost is a virtual host that nobody asks for: Envoy waits for one before its
// listener is ready.
func (v *view) firstHost() *xds.Resource {
	name := routed + "/nobody"
	return v.fixed(name, "nobody", func() proto.Message {
		return &route.VirtualHost{Name: name, Domains: []string{"nobody.invalid"}}
	})
}

// routes answers for a route configuration.
func (v *view) routes(p *xds.Proxy, name string) xds.Bundle {
	if name == routed {
		r := v.fixed(routed, "routes", func() proto.Message {
			return &route.RouteConfiguration{Name: routed, ValidateClusters: no(), Vhds: &route.Vhds{ConfigSource: ads(0)}}
		})
		return xds.Bundle{Resource: r, After: []xds.Dependency{{Type: xds.VirtualHostType, Resource: v.firstHost()}}}
	}
	return xds.Bundle{Resource: v.routeConfiguration(p, name)}
}

// host answers for the virtual host of a service with routes, "routed/80.reviews.shop...".
// A service that has none any more sends all to itself. None at all is said without a
// body: 404 at once.
func (v *view) host(p *xds.Proxy, name string) xds.Bundle {
	if first := v.firstHost(); name == first.Name {
		return xds.Bundle{Resource: first}
	}
	authority, _ := strings.CutPrefix(name, routed+"/")
	r, ok := parseRoutedHost(authority)
	t, found := v.target(r, p.Namespace)
	if !ok || !found || name != routed+"/"+authority {
		return xds.Bundle{}
	}
	pol := v.policy(t, p.Namespace)
	pol.inside, pol.family = true, t.called()
	var a xds.Bundle
	a.Resource = v.kept.service(t.service).get(hostKey{t.port.Number, pol.seenBy(), name}, func() *xds.Resource {
		return seal(name, pol.virtualHost(name, authority))
	})
	for _, c := range pol.clusters() {
		if r := v.serviceCluster(c.name(), c, shapeOf(p), true); r != nil {
			a.Before = append(a.Before, xds.Dependency{Type: xds.ClusterType, Resource: r})
		}
	}
	return a
}

type hostKey struct {
	port   uint16
	seenBy string
	name   string // of the virtual host, or of the route configuration
}

// target finds a service's port that a client may see.
func (v *view) target(r reference, namespace string) (target, bool) {
	s := v.mesh.Service(r.host)
	if s == nil || !v.mesh.Visible(s, namespace) {
		return target{}, false
	}
	t := target{service: s, port: s.Port(r.port)}
	if r.family != first {
		t = t.in(r.family)
	}
	return t, t.port != nil && t.port.Protocol != mesh.UDP
}

// policy is that of a service's port for a client.
func (v *view) policy(t target, namespace string) *policy {
	return &policy{
		service: t.service, port: t.port,
		routes: t.service.RoutesFor(namespace, t.port.Number),
		seen: func(b mesh.Backend) *mesh.Service {
			s := v.mesh.Service(b.Host)
			if b.Host == "" || s == nil || !v.mesh.Visible(s, namespace) {
				return nil
			}
			return s
		},
	}
}

// seenBy tells policies of one service and port apart: clients for whom it is the same
// share what is built.
func (p *policy) seenBy() string {
	var b strings.Builder
	for _, r := range p.routes {
		b.WriteString(r.Name)
		for _, n := range r.Namespaces {
			b.WriteString(" " + n)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, t := range p.clusters() {
		b.WriteString(t.name() + "\n")
	}
	h := fnv.New128a()
	h.Write([]byte(b.String()))
	return string(h.Sum(nil))
}
