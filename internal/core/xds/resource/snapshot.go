package resource

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
)

// A builder builds resources from its arguments and from settings that do not change while a control
// plane runs.
type builder struct {
	config          mesh.Config
	firstUseTimeout time.Duration // how long a proxy waits for the control plane
}

// A snapshot is one state of the mesh. It implements xds.Snapshot.
type snapshot struct {
	builder
	mesh   *mesh.Mesh
	number uint64
	ports  *ports
	away   *away
	cache  *cache

	serverFirst     func() []target        // see listServerFirst
	serviceNetworks func() serviceNetworks // see listServiceNetworks
}

var snapshots atomic.Uint64

func newSnapshot(m *mesh.Mesh, firstUseTimeout time.Duration, last *snapshot) *snapshot {
	v := &snapshot{builder: builder{m.Config, firstUseTimeout}, mesh: m, number: snapshots.Add(1)}
	v.serverFirst = sync.OnceValue(v.listServerFirst)
	v.serviceNetworks = sync.OnceValue(v.listServiceNetworks)
	if last == nil {
		v.cache, v.ports = newCache(), countPorts(m.Services())
		v.away = v.newAway(networks{}.after(mesh.Changed(build.New(m.Config).Mesh(), m)), m, nil)
		return v
	}
	v.cache = last.cache.carryOver(m)
	services, workloads := mesh.Changed(last.mesh, m)
	v.ports = last.ports.after(services)
	v.away = v.newAway(last.away.networks.after(services, workloads), m, last.away)
	return v
}

// Version returns the number of the snapshot within this process.
func (v *snapshot) Version() string { return strconv.FormatUint(v.number, 10) }

// Wildcard returns the resources that p gets without naming them.
func (v *snapshot) Wildcard(p *xds.Proxy, typeURL string, prewarm []string) []xds.Bundle {
	switch {
	case typeURL == xds.NameTableType:
		return bundles([]*xds.Resource{nameTable(p)})
	case p.GRPC:
		return nil // a gRPC client names all its resources
	}
	switch typeURL {
	case xds.ListenerType:
		return bundles(v.listeners(p))
	case xds.ClusterType:
		out := v.withTracing(p, bundles(v.fixedClusters()))
		for _, name := range append(v.prewarmNames(p), prewarm...) {
			if b := v.cluster(p, name); b.Resource != nil {
				out = append(out, b)
			}
		}
		return out
	case xds.RouteType:
		return []xds.Bundle{v.routes(p, internalName)} // sent ahead, see package xds
	case xds.VirtualHostType:
		return bundles([]*xds.Resource{v.placeholderHost()})
	}
	return nil
}

// Named returns the resource with a name.
func (v *snapshot) Named(p *xds.Proxy, typeURL, name string) xds.Bundle {
	switch typeURL {
	case xds.ClusterType:
		return v.cluster(p, name)
	case xds.EndpointType:
		return xds.Bundle{Resource: v.namedEndpoints(p, name)}
	case xds.VirtualHostType:
		return v.host(p, name)
	case xds.RouteType:
		return v.routes(p, name)
	case xds.ListenerType:
		return xds.Bundle{Resource: v.listener(p, name)}
	case xds.NameTableType:
		if name == noNames.Name {
			return xds.Bundle{Resource: nameTable(p)}
		}
	}
	return xds.Bundle{}
}

func bundles(list []*xds.Resource) []xds.Bundle {
	var out []xds.Bundle
	for _, r := range list {
		if r != nil {
			out = append(out, xds.Bundle{Resource: r})
		}
	}
	return out
}

// shared returns a resource that depends on no object of the mesh. The key must contain everything on
// which it depends.
func (v *snapshot) shared(name string, key any, build func() proto.Message) *xds.Resource {
	return v.cache.shared.get(key, func() *xds.Resource { return serialize(name, build()) })
}

// fixedClusters returns the clusters that every proxy gets, because listeners and routes refer to them.
func (v *snapshot) fixedClusters() []*xds.Resource {
	return []*xds.Resource{v.fixedCluster(applicationCluster), v.fixedCluster(passthroughCluster)}
}

// fixedCluster returns one of them; nil if none has this name.
func (v *snapshot) fixedCluster(name string) *xds.Resource {
	switch name {
	case applicationCluster:
		return v.shared(name, name, func() proto.Message { return appCluster() })
	case passthroughCluster:
		return v.shared(name, name, func() proto.Message { return originalCluster() })
	}
	return nil
}

// placeholderHost returns a virtual host without traffic, because Envoy's listener becomes ready only
// when it has one.
func (v *snapshot) placeholderHost() *xds.Resource {
	name := internalName + "/placeholder"
	return v.shared(name, "placeholder", func() proto.Message {
		return &route.VirtualHost{Name: name, Domains: []string{"placeholder.invalid"}}
	})
}

// routes returns a route configuration.
func (v *snapshot) routes(p *xds.Proxy, name string) xds.Bundle {
	if name == internalName {
		r := v.shared(internalName, "routes", func() proto.Message {
			return &route.RouteConfiguration{Name: internalName, ValidateClusters: off(), Vhds: &route.Vhds{ConfigSource: ads(0)}}
		})
		return xds.Bundle{Resource: r, After: []xds.Dependency{{Type: xds.VirtualHostType, Resource: v.placeholderHost()}}}
	}
	return xds.Bundle{Resource: v.routesOf(p, name)}
}

// host returns the virtual host of a service with routes, "routed/80.reviews.shop...". If the service
// no longer has routes, all requests go to the service. If the service does not exist, there is no
// resource, and requests get 404 at once.
func (v *snapshot) host(p *xds.Proxy, name string) xds.Bundle {
	if placeholder := v.placeholderHost(); name == placeholder.Name {
		return xds.Bundle{Resource: placeholder}
	}
	authority, _ := strings.CutPrefix(name, internalName+"/")
	r, ok := parseRoutedHost(authority)
	t, found := v.target(r, p.Namespace)
	if !ok || !found || name != internalName+"/"+authority {
		return xds.Bundle{}
	}
	pol := v.policy(t, p.Namespace)
	pol.internal, pol.family = true, t.effectiveFamily()
	var b xds.Bundle
	b.Resource = v.cache.of(t.service).get(hostKey{t.port.Number, pol.key(), name}, func() *xds.Resource {
		return serialize(name, pol.virtualHost(name, authority))
	})
	for _, c := range pol.clusters() {
		if r := v.serviceCluster(c.name(), c, featuresOf(p), true); r != nil {
			b.Before = append(b.Before, xds.Dependency{Type: xds.ClusterType, Resource: r})
		}
	}
	return b
}

type hostKey struct {
	port   uint16
	policy string // [policy.key]
	name   string // of the virtual host, or of the route configuration
}

// target returns a service's port, if clients in a namespace can see it.
func (v *snapshot) target(r reference, namespace string) (target, bool) {
	s := v.mesh.Service(r.host)
	if s == nil || !v.mesh.Visible(s, namespace) {
		return target{}, false
	}
	t := target{service: s, port: s.Port(r.port)}
	if r.family != primary {
		t = t.withFamily(r.family)
	}
	return t, t.port != nil && t.port.Protocol != mesh.UDP
}

// policy returns the policy for a service's port and clients in a namespace.
func (v *snapshot) policy(t target, namespace string) *policy {
	return &policy{
		service: t.service, port: t.port,
		routes: t.service.RoutesFor(namespace, t.port.Number),
		visible: func(b mesh.Backend) *mesh.Service {
			s := v.mesh.Service(b.Host)
			if b.Host == "" || s == nil || !v.mesh.Visible(s, namespace) {
				return nil
			}
			return s
		},
	}
}

// key distinguishes the policies for one service and port: clients with the same key share resources.
func (p *policy) key() string {
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
		b.WriteString(t.name() + faultsKey(t) + "\n")
	}
	h := fnv.New128a()
	h.Write([]byte(b.String()))
	return string(h.Sum(nil))
}
