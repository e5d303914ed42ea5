package resource

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/networks"
	"outrider.dev/internal/core/xds/routes"
)

// A snapshot is one state of the mesh. It implements xds.Snapshot.
type snapshot struct {
	config          mesh.Config
	firstUseTimeout time.Duration // limits the wait of a proxy for the control plane

	mesh   *mesh.Mesh
	number uint64
	ports  *ports
	away   *away
	cache  *cache

	serverFirst     func() []names.Target           // see listServerFirst
	serviceNetworks func() networks.ServiceNetworks // see networks.Blocks.ServiceNetworks
}

var snapshots atomic.Uint64

func newSnapshot(m *mesh.Mesh, firstUseTimeout time.Duration, last *snapshot) *snapshot {
	v := &snapshot{config: m.Config, firstUseTimeout: firstUseTimeout, mesh: m, number: snapshots.Add(1)}
	v.serverFirst = sync.OnceValue(v.listServerFirst)
	v.serviceNetworks = sync.OnceValue(func() networks.ServiceNetworks { return v.away.networks.ServiceNetworks(v.config.Networks) })
	if last == nil {
		v.cache, v.ports = newCache(), countPorts(m.Services())
		v.away = v.newAway(networks.Blocks{}.After(mesh.Changed(build.New(m.Config).Mesh(), m)), m, nil)
		return v
	}
	v.cache = last.cache.carryOver(m)
	services, workloads := mesh.Changed(last.mesh, m)
	v.ports = last.ports.after(services)
	v.away = v.newAway(last.away.networks.After(services, workloads), m, last.away)
	return v
}

func (v *snapshot) clusters() clusters.Builder {
	return clusters.Builder{TrustDomain: v.config.TrustDomain, Metrics: v.config.Telemetry.Metrics, FirstUseTimeout: v.firstUseTimeout}
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
		out := bundles(v.fixedClusters())
		for _, name := range slices.Concat([]string{names.Tracing}, v.prewarmNames(p), prewarm) {
			if b := v.cluster(p, name); b.Resource != nil {
				out = append(out, b)
			}
		}
		return out
	case xds.RouteType:
		return []xds.Bundle{v.routes(p, names.Internal)} // these routes are sent ahead, see package xds
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
	return []*xds.Resource{v.fixedCluster(names.Application), v.fixedCluster(names.Passthrough)}
}

// fixedCluster returns the one of the fixedClusters with this name, or nil.
func (v *snapshot) fixedCluster(name string) *xds.Resource {
	switch name {
	case names.Application:
		return v.shared(name, name, func() proto.Message { return clusters.Application() })
	case names.Passthrough:
		return v.shared(name, name, func() proto.Message { return clusters.Original() })
	}
	return nil
}

// placeholderHost returns a virtual host without traffic, because Envoy's listener becomes ready only
// when it has one.
func (v *snapshot) placeholderHost() *xds.Resource {
	name := names.Internal + "/placeholder"
	return v.shared(name, "placeholder", func() proto.Message {
		return &route.VirtualHost{Name: name, Domains: []string{"placeholder.invalid"}}
	})
}

func (v *snapshot) routes(p *xds.Proxy, name string) xds.Bundle {
	if name == names.Internal {
		r := v.shared(names.Internal, "routes", func() proto.Message {
			return &route.RouteConfiguration{Name: names.Internal, ValidateClusters: wrapperspb.Bool(false), Vhds: &route.Vhds{ConfigSource: message.ADS(0)}}
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
	authority, _ := strings.CutPrefix(name, names.Internal+"/")
	r, ok := names.ParseRoutedHost(authority)
	t, found := v.target(r, p.Namespace)
	if !ok || !found || name != names.Internal+"/"+authority {
		return xds.Bundle{}
	}
	pol := v.policy(t, p.Namespace)
	pol.Internal, pol.Family = true, t.EffectiveFamily()
	var b xds.Bundle
	b.Resource = v.cache.of(t.Service).get(hostKey{t.Port.Number, pol.Key(), name}, func() *xds.Resource {
		return serialize(name, pol.VirtualHost(name, authority))
	})
	for _, c := range pol.Clusters() {
		if r := v.serviceCluster(c.Name(), c, features.Of(p), true); r != nil {
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

// target returns a service's port, of TCP, if clients in a namespace can see it.
func (v *snapshot) target(r names.Reference, namespace string) (names.Target, bool) {
	s := v.mesh.Service(r.Host)
	if s == nil || !v.mesh.Visible(s, namespace) {
		return names.Target{}, false
	}
	t := names.Target{Service: s, Port: s.Port(r.Port)}
	if r.Family != names.Primary {
		t = t.WithFamily(r.Family)
	}
	return t, t.Port != nil
}

// policy returns the policy for a service's port and clients in a namespace.
func (v *snapshot) policy(t names.Target, namespace string) *routes.Policy {
	return &routes.Policy{
		Service: t.Service, Port: t.Port,
		Routes: t.Service.RoutesFor(namespace, t.Port.Number),
		Visible: func(b mesh.Backend) *mesh.Service {
			s := v.mesh.Service(b.Host)
			if b.Host == "" || s == nil || !v.mesh.Visible(s, namespace) {
				return nil
			}
			return s
		},
	}
}
