package xds

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
)

// Type URLs of resources.
const (
	TypePrefix      = "type.googleapis.com/"
	ListenerType    = TypePrefix + "envoy.config.listener.v3.Listener"
	ClusterType     = TypePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointType    = TypePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	RouteType       = TypePrefix + "envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = TypePrefix + "envoy.config.route.v3.VirtualHost"
	NameTableType   = TypePrefix + "istio.networking.nds.v1.NameTable" // for Istio's agent
)

// A Resource is immutable, and shared by all proxies that may have it.
type Resource struct {
	Name string
	// Version identifies the content, for example by a digest. A proxy that reconnects, perhaps to
	// another replica, is not sent a version that it has already.
	Version string
	// Body is the serialised resource. If it is nil, no resource has this name; only types whose
	// protocol can express that (virtual hosts) use it.
	Body *anypb.Any
}

// A Proxy is a client with a verified identity.
type Proxy struct {
	ID             string // from the node
	Namespace      string // from the certificate
	ServiceAccount string // from the certificate
	Addresses      []netip.Addr
	Metadata       map[string]string
	// GRPC marks a gRPC client without a proxy. It supports fewer fields of a resource than Envoy, and
	// rejects unsupported ones.
	GRPC bool
	// Relayed marks a proxy whose agent relays the stream, and answers while the control plane is unreachable.
	Relayed bool
	Envoy   string // version; empty if it is not an Envoy, or does not report it
	// BoringSSL marks an Envoy that reports BoringSSL as its TLS library, and not BoringSSL's FIPS build.
	BoringSSL bool
	// Has returns the version of a resource that the proxy has, also from an earlier stream; "" if it has none.
	// Nil: it has nothing. A proxy may claim any version of an earlier stream.
	Has func(typeURL, name string) string
}

// A Bundle contains the resource with a given name, and the resources that belong to it.
type Bundle struct {
	// Resource has the name that was looked up. If it is nil, there is no such resource, and the server
	// sends a substitute that makes the client fail at once: see notfound.go.
	Resource *Resource

	// Service says that the cluster belongs to a service, so that the workload's next pod gets it with
	// its first response.
	Service bool

	// Hold is the time for which the first response with the resource is delayed, because the resource may be
	// about to change: the address may soon belong to a new service.
	Hold time.Duration

	// Before are resources that are sent before Resource, unless the client has them: the clusters of a virtual
	// host. The resources that belong to such a cluster are found by its name.
	//
	// After are resources that are sent right after Resource, each time and without a subscription: the endpoints
	// of a cluster, the first virtual host of a route configuration.
	Before, After []Dependency
}

// A Dependency is a resource to which another resource refers, such as the cluster of a route.
type Dependency struct {
	Type     string
	Resource *Resource
	// Chosen marks a resource that depends on the version that the proxy has of it ([Proxy.Has]). A proxy that comes
	// back says so when it subscribes to the type, which it does by itself; until then the resource is not sent.
	Chosen bool
}

// A Snapshot is one state of the mesh, as resources. It is immutable and read by many streams at a
// time. It must be a pointer, because snapshots are compared with ==.
type Snapshot interface {
	// Version identifies the snapshot in the status.
	Version() string

	// Wildcard returns the resources that p gets without naming them: by a wildcard subscription, or
	// before any subscription. Prewarm lists the clusters to which p is expected to subscribe.
	Wildcard(p *Proxy, typeURL string, prewarm []string) []Bundle

	// Named returns the resource with one name. The server also calls it to get the current state of a
	// resource from Wildcard, Before or After, so Named must accept every name of a resource that this
	// snapshot or an earlier one returned.
	Named(p *Proxy, typeURL, name string) Bundle

	// Notes returns sentences, for the status and the log, about facts that the proxy's owner may not expect.
	// listeners are the names of the listeners to which p has subscribed, and endpoints the names of the endpoints
	// that it has.
	Notes(p *Proxy, listeners, endpoints []string) []string

	// Away returns the answers that the agents of relayed proxies give while the control plane is unreachable,
	// as wire.Away; nil: none. They are the same for all proxies.
	Away() []byte

	// Diff returns, by type, how this snapshot differs from an older one. A missing type has not
	// changed. False means unknown, in which case each stream compares everything that it has sent. The
	// result is valid for all proxies, and is computed once for each pair of snapshots.
	Diff(old Snapshot) (map[string]Change, bool)
}

// A Change is the difference between two snapshots in one type. It need not mention resources that differ only in
// Before or After, because those are changes of other types.
type Change struct {
	// Wildcard says that the set of names that [Snapshot.Wildcard] returns may differ. A resource of that set
	// with another version is in Names.
	Wildcard bool
	// AllNames says that any resource may differ.
	AllNames bool
	// Names are the names of resources that may differ.
	Names map[string]struct{}
	// Match reports whether a resource whose name is not in Names may differ. It may be nil.
	Match func(name string) bool
	// For reports whether any resource of a proxy may differ, as if AllNames were set for that proxy. It may be nil.
	For func(*Proxy) bool
}

// A Source provides snapshots, one after another.
type Source interface {
	// Current returns the newest snapshot, and a channel that is closed when there is a newer one. A nil snapshot
	// means that the state of the mesh is not known yet, and proxies wait.
	Current() (Snapshot, <-chan struct{})
}
