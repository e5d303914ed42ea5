package xds

import (
	"net/netip"

	"google.golang.org/protobuf/types/known/anypb"
)

// Types of resources, as they are named on the wire.
const (
	TypePrefix      = "type.googleapis.com/"
	ListenerType    = TypePrefix + "envoy.config.listener.v3.Listener"
	ClusterType     = TypePrefix + "envoy.config.cluster.v3.Cluster"
	EndpointType    = TypePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	RouteType       = TypePrefix + "envoy.config.route.v3.RouteConfiguration"
	VirtualHostType = TypePrefix + "envoy.config.route.v3.VirtualHost"
)

// A Resource is one thing that a proxy is told. It is shared by all that may have it,
// and never changed.
type Resource struct {
	Name    string
	Aliases []string // other names that it was or may be asked for by (virtual hosts)
	// Version names the content, for example by a digest: a proxy that reconnects, maybe
	// to another replica, is not told again what it has in this version.
	Version string
	// Body is the serialised resource. Nil says that there is none of this name, where
	// the protocol has a way to say that (virtual hosts).
	Body *anypb.Any
}

// A Proxy is who asks, after its identity was checked.
type Proxy struct {
	ID             string // as it calls itself
	Namespace      string // from its certificate
	ServiceAccount string // from its certificate
	Addresses      []netip.Addr
	Metadata       map[string]string
	// OnDemand: it asks for what it needs. Otherwise it is told everything that it may see.
	OnDemand bool
}

// An Answer is what is told about one name.
type Answer struct {
	// Resource answers the name. Its own name is another one where the name asked for is
	// only a spelling (virtual hosts); the server then adds the spelling to the aliases.
	// Nil: there is nothing of that name. The server then says so in the way that the
	// asker does not wait for: see absent.go.
	Resource *Resource

	// Before must be told before Resource, unless it is known already: the clusters that
	// a virtual host sends to. What is behind such a cluster is found by asking for it
	// by name.
	//
	// Behind is told right after Resource, each time and even where nobody asked: the
	// endpoints of a cluster, the first virtual host of a route configuration.
	Before, Behind []Needed
}

// Needed is a resource with its type.
type Needed struct {
	Type     string
	Resource *Resource
}

// A View is one state of the mesh, as resources. It does not change, is asked by many
// streams at a time, and is a pointer: views are compared with ==.
type View interface {
	// Version names the view, for people.
	Version() string

	// All returns what p is told without a name: by a wildcard subscription, or before
	// any. Wanted are the clusters that p is expected to ask for.
	All(p *Proxy, typeURL string, wanted []string) []Answer

	// Named returns what p is told when it asks for a name. That is also how the server
	// finds out what became of a resource that it told, from All, Before or Behind: so
	// Named knows every name of a resource that this or an earlier view handed out.
	Named(p *Proxy, typeURL, name string) Answer
}

// A Differ is a View that knows what changed. Without it each stream compares all that
// it told; with it, only what is named.
type Differ interface {
	// Since returns by type how the answers of this view differ from those of an older
	// one. A type that is missing has not changed. False: not known. The same for all
	// proxies; asked once for each pair of views.
	Since(old View) (map[string]Change, bool)
}

// A Change is what differs between two views in one type. What differs only in what is
// before or behind it need not be here: that has a type of its own.
type Change struct {
	// All: what View.All returns may be another set. What is in it in another version is
	// in Names.
	All bool
	// Every: any name may be answered otherwise.
	Every bool
	// Names may be answered otherwise: names of resources and names to ask for.
	// A virtual host stands for all spellings that it was asked for by.
	Names map[string]struct{}
}

// A Source has views, one after another.
type Source interface {
	// Current returns the newest view, and a channel that is closed when there is a newer
	// one. A nil view: not known yet; proxies wait.
	Current() (View, <-chan struct{})
}
