// Package mesh models a mesh as values: services, their endpoints, workloads, routes and
// policies.
//
// A [Mesh] is a snapshot. It comes from a folder of manifests or from a cluster; package
// xds/resource turns it into Envoy's resources. A newer snapshot shares the unchanged
// objects with the older one, pointer by pointer: so what was computed for an object can
// be cached.
//
// A source puts the objects that it has, as parts, into a builder of package build, and takes a new
// snapshot when it needs one.
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
	DefaultRoot        = "outrider-system" // its policies hold for the whole mesh
)

// A Config is what is fixed for the life of a control plane.
type Config struct {
	TrustDomain   string // of identities; default [DefaultTrustDomain]
	Domain        string // of service names; default [DefaultDomain]
	RootNamespace string // default [DefaultRoot]

	// Networks contain the addresses of services and pods. A connection to an address
	// outside of them is passed through without the control plane. Default: the private
	// networks (RFC 1918, 6598 and 4193).
	Networks []netip.Prefix

	Telemetry telemetry.Settings // default: off
}

// A Service is a name with ports, and with addresses or endpoints behind it.
type Service struct {
	Name, Namespace string
	Host            string       // name.namespace.svc.domain, or the name of an external service
	Addresses       []netip.Addr // virtual addresses; none for a headless service
	External        string       // an ExternalName's target; empty otherwise
	Headless        bool
	Ports           []Port   // by number
	ExportTo        []string // namespaces that may see it; none: all; ".": its own

	Traffic Traffic // which endpoints a client prefers, if these have no hints

	Topological bool // the order of the endpoints depends on where a client is

	Endpoints     []Endpoint // by port name, then address
	RoutesLeftOut []Key      // valid routes that do not fit
	Routes        []Route    // with this service as parent: see [Service.RoutesFor]

	Policies []PortPolicy // of the ports that have any, by number
}

// Traffic is which endpoints of a service a client prefers: its trafficDistribution.
type Traffic string

const (
	AnyTraffic Traffic = ""
	SameZone   Traffic = "PreferSameZone" // or PreferClose
	SameNode   Traffic = "PreferSameNode" // then those of the same zone
)

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
	Kept     bool // neither, but it was ready until a moment ago
	Node     string
	Zone     string
	ForZones string    // hints, each followed by a comma: the zones whose clients are to use it
	ForNodes string    // likewise nodes
	Hostname string    // of a pod with a name of its own below a headless service
	Workload *Workload // nil if it is not known
}

// A Workload is a pod, or a host outside of Kubernetes.
type Workload struct {
	Name, Namespace string
	ServiceAccount  string
	Labels          map[string]string
	Addresses       []netip.Addr
	Node            string
	Zone            string
	Proxied         bool      // it has a proxy, which supports mutual TLS
	Own             bool      // the proxy is Outrider's
	Host            bool      // a host outside of Kubernetes
	HostNetwork     bool      // its addresses are its node's: [Mesh.Workload] does not find it
	TokenSHA256     string    // of a host: lower-case hex of its one-time token's hash
	Ports           []AppPort // that services or policies declare, by number
	TLS             TLSMode   // of every other port
}

// An AppPort is a port of a workload's application, with the protocol that its services
// declare; [Unknown] if they disagree.
type AppPort struct {
	Number   uint16
	Protocol Protocol
	TLS      TLSMode
}

// A Protocol of a port.
type Protocol string

const (
	Unknown Protocol = ""    // detected from the first bytes
	TCP     Protocol = "tcp" // bytes, without detection
	// ServerFirst is TCP where the server speaks first, as MySQL does: waiting for the
	// client's first bytes would stall it.
	ServerFirst Protocol = "server-first"
	HTTP        Protocol = "http"
	HTTP2       Protocol = "http2"
	GRPC        Protocol = "grpc"
	TLS         Protocol = "tls" // TLS of the application's own, passed through
	UDP         Protocol = "udp" // not captured
)

// IsHTTP reports whether a port has requests.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// A TLSMode is that of a PeerAuthentication: whether a port accepts mutual TLS.
type TLSMode string

const (
	Permissive TLSMode = ""        // mutual TLS and plain
	Strict     TLSMode = "STRICT"  // mutual TLS only
	Disable    TLSMode = "DISABLE" // plain only
)

// A Route is one rule of an HTTPRoute or a GRPCRoute with one match: rules with several are
// split, because the Gateway API orders matches, not rules. [Service.RoutesFor] returns those
// for a client.
type Route struct {
	Name           string   // namespace/name/rule, where a rule without a name has its number
	GRPC           bool     // for calls of gRPC alone
	Port           uint16   // of the parent; 0: all its ports
	Namespaces     []string // of its clients; none: all
	Matches        []Match  // any of them; none: everything
	Filters        []Filter
	Backends       []Backend     // none: 500, as the Gateway API requires, or UNAVAILABLE
	Timeout        time.Duration // of the request; 0: none
	BackendTimeout time.Duration // of one try; 0: none
	Retry          *Retry
}

// A Match of a request: all that is set must match.
type Match struct {
	Path    *Text
	Call    *Call // of a GRPCRoute, in place of Path
	Headers []Pair
	Query   []Pair
	Method  string
}

// A Call is a method of gRPC to match. An empty text matches all.
type Call struct {
	Kind            TextKind // [Exact] or [RegExp]
	Service, Method string   // package.Service, Method
}

// A Text to match.
type Text struct {
	Kind  TextKind
	Value string
}

// A TextKind is how a text matches.
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

// A Redirect responds instead of a backend. Empty fields leave the request's value.
type Redirect struct {
	Scheme, Host string
	Path         *PathChange
	Port         uint16
	Status       int // 301, 302, 303, 307 or 308
}

// A Rewrite changes the request to the backend. Empty fields leave the request's value.
type Rewrite struct {
	Host string
	Path *PathChange
}

// A PathChange replaces a whole path, or the prefix that matched.
type PathChange struct {
	Full   string
	Prefix *string
}

// A Backend gets a share of the requests.
//
// It has the name of its service instead of a pointer: routes are circular (the backend of
// a service's route is mostly the service itself), and a change of one service's endpoints
// must not change every service with routes that lead to it.
type Backend struct {
	Kind            string // as in the route, if it is not a Service: then it does not exist
	Namespace, Name string // as in the route
	Host            string // [Service.Host]; empty: it is not [Resolved], and its share gets 500
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

// PortTLS returns the TLS mode of a port of w.
func (w *Workload) PortTLS(number uint16) TLSMode {
	for _, p := range w.Ports {
		if p.Number == number {
			return p.TLS
		}
	}
	return w.TLS
}

// ProxyPorts are the ports on which every proxy accepts captured connections. A connection
// to one of them in a pod with a proxy reaches the proxy: none of them is a port of the
// application, whatever a service declares.
var ProxyPorts = []uint16{contract.OutboundPort, contract.InboundPort, contract.RelayOutbound, contract.RelayInbound}
