// Package mesh models a mesh as values: services, their endpoints, workloads, routes and policies.
//
// A [Mesh] is a snapshot, made from a folder of manifests or from a cluster. Package xds/resource converts it
// to Envoy's resources. A newer snapshot shares the pointers of unchanged objects with older ones, so that
// results computed for an object can be cached.
//
// A source passes its objects to a builder of package build, in the form of a [Part]. The builder makes the
// snapshots.
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
	DefaultRoot        = "outrider-system" // policies in it apply to the whole mesh
)

// A Config contains settings that do not change while a control plane runs.
type Config struct {
	TrustDomain   string // trust domain of identities; default [DefaultTrustDomain]
	Domain        string // DNS domain of service names; default [DefaultDomain]
	RootNamespace string // default [DefaultRoot]

	// Networks contain the addresses of services and pods. The proxy passes connections to all other addresses
	// through, without configuration from the control plane. Default: the private networks (RFC 1918, 6598 and
	// 4193).
	Networks []netip.Prefix

	MinTLS TLSVersion // what servers accept between proxies; default: [TLS12]

	Telemetry telemetry.Settings // default: off
}

// A TLSVersion is a version of TLS, by its name in Istio's MeshConfig.
type TLSVersion string

// The versions that a proxy may accept as the oldest one.
const (
	TLS12 TLSVersion = "TLSV1_2"
	TLS13 TLSVersion = "TLSV1_3"
)

// A Service is a Kubernetes Service with its endpoints, and the routes and policies that apply to it.
type Service struct {
	Name, Namespace string
	Host            string       // name.namespace.svc.domain, or the name of an external service
	Addresses       []netip.Addr // virtual addresses; none for a headless service
	External        string       // an ExternalName's target; empty otherwise
	Headless        bool
	Ports           []Port   // sorted by number, those with the same one by transport
	ExportTo        []string // namespaces whose clients can see it; none: all; ".": its own namespace

	Traffic Traffic // endpoints that a client prefers if they have no hints, or the only ones that it may use

	// Affinity says that a client stays with one endpoint of a port while that is in use (sessionAffinity: ClientIP).
	Affinity bool

	Topological bool // the endpoints, or their order, depend on the client's location

	Endpoints     []Endpoint            // sorted by port name, then by address
	OnNode        map[string][]Endpoint // the same by node, if Traffic is [OnlyNode]; see [Service.Reachable]
	RoutesLeftOut []Key                 // valid routes that are not used because of [MaxRouteBytes]
	Routes        []Route               // routes with this service as parent; use [Service.RoutesFor]

	Policies []PortPolicy // policies for ports, by port number; ports without a policy are missing
}

// Traffic determines which endpoints of a service a client uses, as the fields trafficDistribution and
// internalTrafficPolicy of a Service do.
type Traffic string

const (
	AnyTraffic Traffic = ""
	SameZone   Traffic = "PreferSameZone" // PreferClose in a Service means the same
	SameNode   Traffic = "PreferSameNode" // if the node has no endpoint, those in the same zone
	// OnlyNode is internalTrafficPolicy: Local. If the client's node has no endpoint, calls fail. Hints have no
	// effect.
	OnlyNode Traffic = "Local"
)

// A Port is a port of a service.
type Port struct {
	Name     string
	Number   uint16
	Protocol Protocol
}

// An Endpoint is one address and port behind one port of a service.
type Endpoint struct {
	PortName string // name of the service's port
	Addr     netip.Addr
	Port     uint16
	Ready    bool
	Serving  bool // terminating, but still answers
	Kept     bool // neither ready nor serving, but ready a moment ago; gets traffic if no other endpoint can
	Node     string
	Zone     string
	ForZones string    // hints, each followed by a comma: zones whose clients should use the endpoint
	ForNodes string    // hints, each followed by a comma: nodes whose clients should use the endpoint
	Hostname string    // hostname of the pod within a headless service; empty: none
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
	Proxied         bool      // it has a proxy (Outrider's or Istio's) that supports mutual TLS
	Own             bool      // its proxy is Outrider's
	Host            bool      // a host outside of Kubernetes
	HostNetwork     bool      // its addresses belong to its node, so [Mesh.Workload] does not find it
	TokenSHA256     string    // for a host: SHA-256 of its one-time token, in lower-case hex
	Ports           []AppPort // ports declared by services or policies, by number
	TLS             TLSMode   // mode of all ports that are not in Ports
}

// An AppPort is a port of a workload's application. Its protocol is the one that all services declare for it;
// [Unknown] if they differ.
type AppPort struct {
	Number   uint16
	Protocol Protocol
	TLS      TLSMode
}

// A Protocol is the protocol that a service declares for a port.
type Protocol string

const (
	Unknown Protocol = ""    // not declared: detected from the first bytes
	TCP     Protocol = "tcp" // treated as bytes, without protocol detection
	// ServerFirst is TCP in which the server sends the first bytes, as in MySQL. A proxy must not wait for
	// the client's bytes, because the client waits for the server's.
	ServerFirst Protocol = "server-first"
	HTTP        Protocol = "http"
	HTTP2       Protocol = "http2"
	GRPC        Protocol = "grpc"
	TLS         Protocol = "tls" // TLS by the application, passed through
	// Ports of other transports than TCP are not captured, and have no other protocol.
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// A Transport is the protocol of a port in Kubernetes. The number of a port means another port for each transport.
type Transport string

const (
	OverTCP  Transport = "TCP"
	OverUDP  Transport = "UDP"
	OverSCTP Transport = "SCTP"
)

// Transports are all transports.
var Transports = []Transport{OverTCP, OverUDP, OverSCTP}

// Transport returns the transport of a port with the protocol.
func (p Protocol) Transport() Transport {
	switch p {
	case UDP:
		return OverUDP
	case SCTP:
		return OverSCTP
	}
	return OverTCP
}

// Captured reports whether proxies take the connections to a port with the protocol.
func (p Protocol) Captured() bool { return p.Transport() == OverTCP }

// IsHTTP reports whether a connection with the protocol consists of requests.
func (p Protocol) IsHTTP() bool { return p == HTTP || p == HTTP2 || p == GRPC }

// A TLSMode determines whether a port accepts mutual TLS and plain text. A PeerAuthentication has the same
// modes.
type TLSMode string

const (
	Permissive TLSMode = ""        // mutual TLS and plain text
	Strict     TLSMode = "STRICT"  // mutual TLS only
	Disable    TLSMode = "DISABLE" // plain text only
)

// A Route is one rule of an HTTPRoute or a GRPCRoute, with at most one match. A rule with several matches
// becomes several routes, because the Gateway API defines an order of matches, not of rules. Use
// [Service.RoutesFor] to get the routes for a client.
type Route struct {
	Name           string   // namespace/name/rule; a rule without a name is numbered
	GRPC           bool     // it applies only to gRPC calls
	Port           uint16   // port of the parent; 0: all its ports
	Namespaces     []string // namespaces of the clients to which it applies; none: all
	Matches        []Match  // at most one; none: everything matches
	Filters        []Filter
	Backends       []Backend     // none: the response is 500, as the Gateway API requires, or UNAVAILABLE for gRPC
	Timeout        time.Duration // limit of the whole request; 0: none
	BackendTimeout time.Duration // limit of one attempt; 0: none
	Retry          *Retry
}

// A Match is a condition on a request. All fields that are set must match.
type Match struct {
	Path    *Text
	Call    *Call // in a GRPCRoute it replaces Path
	Headers []Pair
	Query   []Pair
	Method  string
}

// A Call is the gRPC method that a route matches. An empty string matches all services or methods.
type Call struct {
	Kind            TextKind // [Exact] or [RegExp]
	Service, Method string   // package.Service and the name of the method
}

// A Text is a text that must be equal to a value, or match a pattern.
type Text struct {
	Kind  TextKind
	Value string
}

// A TextKind determines how a text is compared.
type TextKind string

const (
	Exact  TextKind = "exact"
	Prefix TextKind = "prefix" // compared by whole path elements
	RegExp TextKind = "regexp" // a regular expression of RE2
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
	MirrorPercent   float64 // percentage of the requests that Mirror gets: above 0, up to 100
}

// Headers describes changes of headers.
type Headers struct {
	Set, Add [][2]string
	Remove   []string
}

// A Redirect is the response to a request, in place of a call to a backend. Empty fields keep the request's
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

// A PathChange replaces a whole path, or only the matched prefix.
type PathChange struct {
	Full   string
	Prefix *string
}

// A Backend receives a share of the requests.
//
// It contains the name of its service instead of a pointer, for two reasons. Routes are circular: the backend
// of a service's route is usually that service. And if one service's endpoints change, other services with a
// route to it must not change.
type Backend struct {
	Kind            string // kind in the route if it is not Service; such a backend is never resolved
	Namespace, Name string // names in the route
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

// Port returns a port of the application, and whether a service or policy declares it.
func (w *Workload) Port(number uint16) (AppPort, bool) {
	for _, p := range w.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return AppPort{Number: number, TLS: w.TLS}, false
}

// ProxyPorts are the ports on which every proxy accepts captured connections. In a pod with a proxy
// they belong to the proxy and never to the application, whatever a service declares.
var ProxyPorts = []uint16{contract.OutboundPort, contract.InboundPort, contract.RelayOutbound, contract.RelayInbound}
