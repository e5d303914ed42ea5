// Package mesh is what a mesh consists of, as values: services, their endpoints,
// workloads, routes and policies.
//
// A [Mesh] is a snapshot. Two sources make one (a folder of manifests, a cluster);
// package xds/resource turns it into what proxies are told. A newer snapshot shares with
// the older one whatever did not change, pointer by pointer: so what was computed for
// it can be kept.
//
// A source puts what it knows into a [Builder], object by object, and takes a new
// snapshot when it wants one: what that costs goes with what changed, not with the mesh.
//
// The package does no I/O and imports only the standard library.
package mesh

import (
	"net/netip"
	"time"
)

// Defaults of a [Mesh].
const (
	DefaultTrustDomain = "cluster.local"
	DefaultDomain      = "cluster.local"
	DefaultRoot        = "outrider-system" // the namespace whose policies hold for the whole mesh
)

// A Config is what is fixed for the life of a control plane.
type Config struct {
	TrustDomain   string // of identities; default [DefaultTrustDomain]
	Domain        string // of service names; default [DefaultDomain]
	RootNamespace string // default [DefaultRoot]

	// Networks are where services and pods have their addresses. What a proxy is asked
	// to connect to outside of them is passed through without a question to the control
	// plane. Default: the private networks (RFC 1918, 6598 and 4193).
	Networks []netip.Prefix
}

// A Service is a name with ports, and with addresses or endpoints behind it.
type Service struct {
	Name, Namespace string
	Host            string       // name.namespace.svc.domain, or the name of a service outside
	Addresses       []netip.Addr // virtual addresses; none for a headless service
	External        string       // an ExternalName's target; empty otherwise
	Headless        bool
	Ports           []Port   // by number
	ExportTo        []string // namespaces that may see it; none: all; ".": its own

	Endpoints []Endpoint // by port name, then address
	Routes    []Route    // HTTP routes whose parent is this service; the first match wins
}

// A Port of a service.
type Port struct {
	Name     string
	Number   uint16
	Protocol Protocol
}

// An Endpoint is one address behind one port of a service.
type Endpoint struct {
	PortName string // of the service's port
	Addr     netip.Addr
	Port     uint16
	Ready    bool
	Serving  bool // terminating, but still answers
	Zone     string
	Hostname string    // of a pod with a name of its own below a headless service
	Workload *Workload // what runs there; nil if it is not known
}

// A Workload is a pod, or a host outside of Kubernetes.
type Workload struct {
	Name, Namespace string
	ServiceAccount  string
	Labels          map[string]string
	Addresses       []netip.Addr
	Node            string
	Zone            string
	Proxied         bool      // it has a proxy, which takes and requires what its policy says
	Host            bool      // a host outside of Kubernetes
	HostNetwork     bool      // its addresses are its node's: [Mesh.Workload] does not find it
	TokenSHA256     string    // of a host: lower-case hex of its one-time token's hash
	Ports           []AppPort // what services send to it and policies name, by number
	TLS             TLSMode   // what the policies say for every other port
}

// An AppPort is a port of a workload's application, with the protocol that the
// services in front of it agree on; [Unknown] if they do not.
type AppPort struct {
	Number   uint16
	Protocol Protocol
	TLS      TLSMode // what the policies say for this port
}

// A Protocol is how a port is spoken to.
type Protocol string

const (
	Unknown Protocol = ""    // to be found out from the first bytes
	TCP     Protocol = "tcp" // bytes; nothing is waited for
	// ServerFirst is TCP where the server speaks first, as MySQL does: to look at the
	// client's first bytes would stall it.
	ServerFirst Protocol = "server-first"
	HTTP        Protocol = "http"
	HTTP2       Protocol = "http2"
	GRPC        Protocol = "grpc"
	TLS         Protocol = "tls" // TLS of the application's own, passed through
	UDP         Protocol = "udp" // left alone
)

// IsHTTP says whether requests are seen.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// TLSMode says whether a port takes mutual TLS, as PeerAuthentication has it.
type TLSMode string

const (
	Permissive TLSMode = ""        // mutual TLS and plain
	Strict     TLSMode = "STRICT"  // mutual TLS only
	Disable    TLSMode = "DISABLE" // plain only
)

// A Route is one rule of an HTTPRoute, or one match of it: rules with several are taken
// apart, because the Gateway API orders matches, not rules. [Service.RoutesFor] has those
// that hold for a client.
type Route struct {
	Name           string   // namespace/name/rule
	Port           uint16   // of the parent; 0: all its ports
	Namespaces     []string // of the clients it holds for; none: all
	Matches        []Match  // any of them; none: everything
	Filters        []Filter
	Backends       []Backend     // none: 500, as the Gateway API wants it
	Timeout        time.Duration // of the request; 0: none
	BackendTimeout time.Duration // of one try; 0: none
	Retry          *Retry
}

// A Match of a request: all that is set must match.
type Match struct {
	Path    *Text
	Headers []Pair
	Query   []Pair
	Method  string
}

// A Text to match.
type Text struct {
	Kind  TextKind
	Value string
}

// TextKind says how a text matches.
type TextKind string

const (
	Exact  TextKind = "exact"
	Prefix TextKind = "prefix" // of path elements
	RegExp TextKind = "regexp" // RE2
)

// A Pair is a header or a query parameter to match.
type Pair struct {
	Name string
	Text
}

// A Filter changes or answers a request. Exactly one of its pointers is set.
type Filter struct {
	RequestHeaders  *Headers
	ResponseHeaders *Headers
	Redirect        *Redirect
	Rewrite         *Rewrite
	Mirror          *Backend
	MirrorPercent   float64 // of the requests, with Mirror: above 0, up to 100
}

// Headers to change.
type Headers struct {
	Set, Add [][2]string
	Remove   []string
}

// A Redirect answers instead of a backend. Empty fields stay as they were.
type Redirect struct {
	Scheme, Host string
	Path         *PathChange
	Port         uint16
	Status       int // 301 or 302
}

// A Rewrite changes what the backend sees. Empty fields stay as they were.
type Rewrite struct {
	Host string
	Path *PathChange
}

// A PathChange replaces a whole path, or the prefix that matched.
type PathChange struct {
	Full   string
	Prefix *string
}

// A Backend is where a part of the requests goes.
//
// It names its service and does not point to it: routes go in circles (a service's route
// mostly has the service itself as a backend), and a change of one service's endpoints
// must not be a change of every service whose routes lead to it.
type Backend struct {
	Namespace, Name string // as the route has it
	Host            string // [Service.Host]; empty: there is none, and its share is answered with 500
	Port            uint16
	Weight          uint32
	Filters         []Filter
}

// A Retry of requests that failed.
type Retry struct {
	Attempts int
	Codes    []int
	Backoff  time.Duration
}
