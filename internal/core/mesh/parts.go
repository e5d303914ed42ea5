package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// A Part is an object from a source, in the form that the builder takes: one of the Spec types. It must not
// be changed after [build.Builder.Set].
type Part interface{ Key() Key }

// A Key identifies a part.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// Compare orders keys by kind, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

func (k Key) String() string { return string(k.Kind) + " " + k.Namespace + "/" + k.Name }

// A Kind is the kind of a part's Kubernetes object.
type Kind string

const (
	KindService Kind = "Service"
	KindSlice   Kind = "EndpointSlice"
	KindPod     Kind = "Pod"
	KindHost    Kind = "Host"
	KindPolicy  Kind = "PeerAuthentication"
	KindRoute   Kind = "HTTPRoute"
	KindGRPC    Kind = "GRPCRoute"
	KindGrant   Kind = "ReferenceGrant"

	KindAuthorization Kind = "AuthorizationPolicy"

	KindBackendPolicy Kind = "BackendPolicy"
	KindTrafficPolicy Kind = "XBackendTrafficPolicy"
)

// A ServiceSpec is the part for a Kubernetes Service.
type ServiceSpec struct {
	Name, Namespace string
	Addresses       []netip.Addr
	External        string
	Headless        bool
	Ports           []PortSpec
	ExportTo        []string
	Traffic         Traffic
	Affinity        bool // see [Service.Affinity]
	Ignored         []IgnoredField

	// Selector selects the workloads that are the service's endpoints, unless a [SliceSpec] names the
	// service.
	Selector        map[string]string
	PublishNotReady bool
	IPv4, IPv6      bool // address families of its endpoints; neither: those of Addresses, or otherwise both
}

// A PortSpec is a port of a service, with the port of its endpoints to which it leads.
type PortSpec struct {
	Port
	Target     uint16 // port of the endpoints; 0: given by TargetName, or otherwise equal to Number
	TargetName string
}

// A SliceSpec is the part for an EndpointSlice.
type SliceSpec struct {
	Name, Namespace string
	Service         string
	Ports           []SlicePort
	Endpoints       []SliceEndpoint
	Names           bool // its endpoints are DNS names: for the endpoints of the service it does not count
	Ignored         []IgnoredField
}

// An IgnoredField is a field of a valid object that has no effect, or not for all clients.
type IgnoredField struct {
	Field   string // path in the object
	Why     string
	Instead string // advice for the user
}

// A SlicePort is a named port of the service, with its number at every endpoint of the slice.
type SlicePort struct {
	Name      string
	Number    uint16
	Transport Transport // empty: TCP
}

// A SliceEndpoint is one endpoint of a slice.
type SliceEndpoint struct {
	Addresses []netip.Addr
	Ready     bool
	Serving   bool // terminating, but still answers
	Node      string
	Zone      string
	// hints: the zones and nodes whose clients should use the endpoint
	ForZones []string
	ForNodes []string
	Hostname string
	Pod      string // name of the pod; empty if the endpoint is not a pod
}

// A WorkloadSpec is a Pod that may have traffic, or a Host. A pod that has ended has no WorkloadSpec, because
// its address may belong to another pod by now.
type WorkloadSpec struct {
	Workload // its Ports and TLS are unset

	Hostname, Subdomain string
	Ready               bool
	Kept                bool // its readiness changed a moment ago, while its containers kept running
	Terminating         bool
	NamedPorts          map[NamedPort]uint16
}

// A NamedPort is the key of a port of containers. The same name may mean another port for each transport.
type NamedPort struct {
	Name      string
	Transport Transport
}

// A PolicySpec is the part for a PeerAuthentication.
type PolicySpec struct {
	Name, Namespace string
	Created         time.Time
	Selector        map[string]string // none: applies to the namespace or, in the root namespace, to the mesh
	Mode            Mode
	Ports           map[uint16]Mode // modes of ports; used only with a selector
}

// A Mode is the mutual TLS mode in a PeerAuthentication. If it is unset, the mode of the next wider policy is
// inherited.
type Mode string

const (
	Unset          Mode = ""
	ModePermissive Mode = "PERMISSIVE"
	ModeStrict     Mode = "STRICT"
	ModeDisable    Mode = "DISABLE"
)

// A RouteSpec is an HTTPRoute or a GRPCRoute whose parents are services.
type RouteSpec struct {
	Name, Namespace string
	GRPC            bool // it is a GRPCRoute
	Created         time.Time
	Generation      int64 // metadata.generation of the object; 0 in files
	Parents         []Parent
	// Names contain only the rule's name. Port, Namespaces and the Host of backends are unset.
	Rules []Route
}

// A Parent is a service to which a route is attached.
type Parent struct {
	Namespace, Name string
	Port            uint16 // 0: the port with the name Section or, if that is empty, all ports
	Section         string
}

func (s *ServiceSpec) Key() Key { return Key{KindService, s.Namespace, s.Name} }
func (s *SliceSpec) Key() Key   { return Key{KindSlice, s.Namespace, s.Name} }
func (s *PolicySpec) Key() Key  { return Key{KindPolicy, s.Namespace, s.Name} }
func (s *GrantSpec) Key() Key   { return Key{KindGrant, s.Namespace, s.Name} }
func (s *RouteSpec) Key() Key   { return Key{s.kind(), s.Namespace, s.Name} }
func (s *AuthorizationSpec) Key() Key {
	return Key{KindAuthorization, s.Namespace, s.Name}
}

// Key returns the key of the Pod or Host.
func (w *Workload) Key() Key {
	if w.Host {
		return Key{KindHost, w.Namespace, w.Name}
	}
	return Key{KindPod, w.Namespace, w.Name}
}

// Service returns the key of the Service.
func (p Parent) Service() Key { return Key{KindService, p.Namespace, p.Name} }

// ServicePorts returns the ports, sorted as in [Service.Ports].
func (s *ServiceSpec) ServicePorts() []Port {
	if len(s.Ports) == 0 {
		return nil
	}
	out := make([]Port, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = p.Port
	}
	slices.SortStableFunc(out, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol.Transport(), b.Protocol.Transport()))
	})
	return out
}

// Selects reports whether a selector matches labels. An empty selector does not match anything, because a
// Service without a selector gets its endpoints from slices.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return len(selector) > 0
}
