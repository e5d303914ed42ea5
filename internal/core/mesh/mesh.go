// Package mesh models a mesh as values: services, their endpoints, workloads, routes and policies.
//
// A [Mesh] is a snapshot, made from a folder of manifests or from a cluster. Package xds/resource
// converts it to Envoy's resources. A newer snapshot shares the pointers of unchanged objects with
// older ones, so that results computed for an object can be cached.
//
// A source passes its objects, as parts, to a builder of package build, which makes the snapshots.
//
// The package does no I/O.
package mesh

import (
	"net/netip"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
)

// Defaults of a [Mesh].
const (
	DefaultTrustDomain = "cluster.local"
	DefaultDomain      = "cluster.local"
	DefaultRoot        = "outrider-system" // its policies apply to the whole mesh
)

// A Config contains settings that do not change while a control plane runs.
type Config struct {
	TrustDomain   string // in identities; default [DefaultTrustDomain]
	Domain        string // in service names; default [DefaultDomain]
	RootNamespace string // default [DefaultRoot]

	// Networks contain the addresses of services and pods. The proxy passes a connection to any other
	// address through without configuration from the control plane. Default: the private networks (RFC
	// 1918, 6598 and 4193).
	Networks []netip.Prefix

	Telemetry telemetry.Settings // default: off
}

// A Service is a name with ports, and with addresses or endpoints.
type Service struct {
	Name, Namespace string
	Host            string       // name.namespace.svc.domain, or the name of an external service
	Addresses       []netip.Addr // virtual addresses; none for a headless service
	External        string       // an ExternalName's target; empty otherwise
	Headless        bool
	Ports           []Port   // by number
	ExportTo        []string // namespaces that can see it; none: all; ".": its own

	Traffic Traffic // which endpoints a client prefers if they have no hints

	Topological bool // whether the order of the endpoints depends on the client's location

	Endpoints     []Endpoint // by port name, then address
	RoutesLeftOut []Key      // valid routes that exceed the limit
	Routes        []Route    // with this service as parent; use [Service.RoutesFor]

	Policies []PortPolicy // for ports with a policy, by number
}

// Traffic says which endpoints of a service a client prefers, as trafficDistribution does.
type Traffic string

const (
	AnyTraffic Traffic = ""
	SameZone   Traffic = "PreferSameZone" // or PreferClose
	SameNode   Traffic = "PreferSameNode" // then those in the same zone
)

// A Port is a port of a service.
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
	Kept     bool // neither ready nor serving, but ready until a moment ago
	Node     string
	Zone     string
	ForZones string    // hints, each followed by a comma: zones whose clients should use the endpoint
	ForNodes string    // hints, each followed by a comma: nodes whose clients should use the endpoint
	Hostname string    // of a pod with its own name in a headless service
	Workload *Workload // nil if unknown
}

// A Workload is a pod, or a host outside of Kubernetes.
type Workload struct {
	Name, Namespace string
	ServiceAccount  string
	Labels          map[string]string
	Addresses       []netip.Addr
	Node            string
	Zone            string
	Proxied         bool      // it has a proxy that supports mutual TLS
	Own             bool      // the proxy is Outrider's
	Host            bool      // a host outside of Kubernetes
	HostNetwork     bool      // its addresses belong to its node, so [Mesh.Workload] does not find it
	TokenSHA256     string    // for a host: lower-case hex of its one-time token's hash
	Ports           []AppPort // declared by services or policies, by number
	TLS             TLSMode   // for all other ports
}

// An AppPort is a port of a workload's application, with the protocol that its services
// declare; [Unknown] if they disagree.
type AppPort struct {
	Number   uint16
	Protocol Protocol
	TLS      TLSMode
}

// A Protocol is a protocol that a service declares for a port.
type Protocol string

const (
	Unknown Protocol = ""    // detected from the first bytes
	TCP     Protocol = "tcp" // bytes, without protocol detection
	// ServerFirst is TCP in which the server speaks first, as in MySQL: waiting for the client's first
	// bytes would stall it.
	ServerFirst Protocol = "server-first"
	HTTP        Protocol = "http"
	HTTP2       Protocol = "http2"
	GRPC        Protocol = "grpc"
	TLS         Protocol = "tls" // TLS by the application, passed through
	UDP         Protocol = "udp" // not captured
)

// IsHTTP reports whether the protocol consists of requests.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// A TLSMode is a mode in a PeerAuthentication: whether a port accepts mutual TLS.
type TLSMode string

const (
	Permissive TLSMode = ""        // mutual TLS and plain text
	Strict     TLSMode = "STRICT"  // mutual TLS only
	Disable    TLSMode = "DISABLE" // plain text only
)

// A Route is one rule of an HTTPRoute or a GRPCRoute with at most one match. Rules with several matches
// are split, because the Gateway API orders matches, not rules. Use [Service.RoutesFor] to get the
// routes for a client.
type Route struct {
	Name           string   // namespace/name/rule; a rule without a name is numbered
	GRPC           bool     // for gRPC calls only
	Port           uint16   // of the parent; 0: all of its ports
	Namespaces     []string // of the clients to which it applies; none: all
	Matches        []Match  // at most one; none: everything matches
	Filters        []Filter
	Backends       []Backend     // none: 500, as the Gateway API requires, or UNAVAILABLE
	Timeout        time.Duration // for the request; 0: none
	BackendTimeout time.Duration // for one attempt; 0: none
	Retry          *Retry
}

// A Match is a condition on a request: all set fields must match.
type Match struct {
	Path    *Text
	Call    *Call // in a GRPCRoute, instead of Path
	Headers []Pair
	Query   []Pair
	Method  string
}

// A Call is a gRPC method to match. An empty string matches all.
type Call struct {
	Kind            TextKind // [Exact] or [RegExp]
	Service, Method string   // package.Service, Method
}

// A Text is a string to match.
type Text struct {
	Kind  TextKind
	Value string
}

// A TextKind says how a text is compared.
type TextKind string

const (
	Exact  TextKind = "exact"
	Prefix TextKind = "prefix" // by path elements
	RegExp TextKind = "regexp" // in RE2's syntax
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
	MirrorPercent   float64 // of the requests, for Mirror: above 0, up to 100
}

// Headers are changes of headers.
type Headers struct {
	Set, Add [][2]string
	Remove   []string
}

// A Redirect is sent as the response instead of calling a backend. Empty fields keep the request's
// value.
type Redirect struct {
	Scheme, Host string
	Path         *PathChange
	Port         uint16
	Status       int // 301, 302, 303, 307 or 308
}

// A Rewrite changes the request that is sent to the backend. Empty fields keep the request's value.
type Rewrite struct {
	Host string
	Path *PathChange
}

// A PathChange replaces a whole path, or the prefix that was matched.
type PathChange struct {
	Full   string
	Prefix *string
}

// A Backend receives a share of the requests.
//
// It contains the name of its service instead of a pointer, because routes are circular (the backend of
// a service's route is usually that service), and because a change of one service's endpoints must not
// change every service with a route to it.
type Backend struct {
	Kind            string // kind in the route, if it is not Service; such a backend never exists
	Namespace, Name string // as in the route
	Host            string // [Service.Host]; empty: the backend is not [Resolved], and its share gets 500
	Port            uint16
	Weight          uint32
	Filters         []Filter
}

// A Retry configures retries of failed requests.
type Retry struct {
	Attempts int
	Codes    []int
	Backoff  time.Duration
}

// PortTLS returns the TLS mode of a port.
func (w *Workload) PortTLS(number uint16) TLSMode {
	for _, p := range w.Ports {
		if p.Number == number {
			return p.TLS
		}
	}
	return w.TLS
}

// ProxyPorts are the ports on which every proxy accepts captured connections. In a pod with a proxy
// they belong to the proxy and never to the application, whatever a service declares.
var ProxyPorts = []uint16{contract.OutboundPort, contract.InboundPort, contract.RelayOutbound, contract.RelayInbound}
