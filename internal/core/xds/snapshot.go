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

// A Resource is shared by all proxies that may have it, and is never changed.
type Resource struct {
	Name string
	// Version identifies the content, for example by a digest: a proxy that reconnects,
	// maybe to another replica, does not get again what it has in this version.
	Version string
	// Body is the serialised resource. Nil means that no resource has this name, for types
	// with a protocol that can express it (virtual hosts).
	Body *anypb.Any
}

// A Proxy is a client with a verified identity.
type Proxy struct {
	ID             string // from its node
	Namespace      string // from its certificate
	ServiceAccount string // from its certificate
	Addresses      []netip.Addr
	Metadata       map[string]string
	// GRPC: it is a gRPC client without a proxy, which supports less of each resource than an
	// Envoy does, and rejects what it does not support.
	GRPC bool
	// Relayed: its agent relays the stream, and responds while the control plane is away.
	Relayed bool
	Envoy   string // version; empty: it is none, or does not say
}

// A Bundle is the resource of one name, with the resources that belong to it.
type Bundle struct {
	// Resource has the name that was looked up. Nil: no resource has the name. The server then
	// sends what makes the client fail at once: see notfound.go.
	Resource *Resource

	// Service: the cluster belongs to a service, and the workload's next pod gets it with its
	// first response.
	Service bool

	// Hold: the resource is likely to be another one in a moment, as that of an address which is
	// given to a service now. The first response with it waits so long for a change.
	Hold time.Duration

	// Before is sent before Resource, unless the client has it: the clusters of a virtual
	// host. What follows such a cluster is found by looking up its name.
	//
	// After is sent right after Resource, each time and without a subscription: the
	// endpoints of a cluster, the first virtual host of a route configuration.
	Before, After []Dependency
}

// A Dependency is a resource with its type.
type Dependency struct {
	Type     string
	Resource *Resource
}

// A Snapshot is one state of the mesh, as resources. It does not change, many streams
// read it at a time, and it is a pointer: snapshots are compared with ==.
type Snapshot interface {
	// Version identifies the snapshot in the status.
	Version() string

	// Wildcard returns the resources that p gets without naming them: by a wildcard
	// subscription, or before any subscription. Prewarm lists the clusters that p is
	// expected to subscribe to.
	Wildcard(p *Proxy, typeURL string, prewarm []string) []Bundle

	// Named returns the resource of one name. The server also calls it for the current state
	// of a resource from Wildcard, Before or After: so Named accepts every name of a resource
	// that this snapshot or an earlier one returned.
	Named(p *Proxy, typeURL, name string) Bundle

	// Notes returns what is not as the proxy's owner may expect, a sentence each: for the
	// status, and for the log. Listeners are the names that p subscribed to.
	Notes(p *Proxy, listeners []string) []string

	// Away returns what the agents of relayed proxies respond with while the control plane is
	// away, as wire.Away; nil: nothing. It is the same for all proxies.
	Away() []byte

	// Diff returns by type how this snapshot differs from an older one. A type that is
	// missing has not changed. False: unknown, and each stream compares all that it sent.
	// The result holds for all proxies, and is computed once for each pair of snapshots.
	Diff(old Snapshot) (map[string]Change, bool)
}

// A Change is how two snapshots differ in one type. A difference only in Before or After
// need not be here: it is a change of its own type.
type Change struct {
	// Wildcard: the set of names that [Snapshot.Wildcard] returns may differ. A member with
	// another version is in Names.
	Wildcard bool
	// AllNames: the resource of any name may differ.
	AllNames bool
	// Names of resources that may differ.
	Names map[string]struct{}
	// Match reports whether a name may differ that is not in Names; nil: none.
	Match func(name string) bool
}

// A Source has snapshots, one after another.
type Source interface {
	// Current returns the newest snapshot, and a channel that is closed when there is a
	// newer one. A nil snapshot: not known yet; proxies wait.
	Current() (Snapshot, <-chan struct{})
}
