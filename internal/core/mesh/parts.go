package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// A Part is an object of a source: one of the Spec types. It must not be changed after
// [build.Builder.Set].
type Part interface{ Key() Key }

// A Key names a part.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// Compare orders keys by kind, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

func (k Key) String() string { return string(k.Kind) + " " + k.Namespace + "/" + k.Name }

// A Kind of part: that of the Kubernetes object.
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

// A ServiceSpec is a Kubernetes Service.
type ServiceSpec struct {
	Name, Namespace string
	Addresses       []netip.Addr
	External        string
	Headless        bool
	Ports           []PortSpec
	ExportTo        []string
	Traffic         Traffic

	// Selector of the workloads that are its endpoints, if it has no [SliceSpec].
	Selector        map[string]string
	PublishNotReady bool
	IPv4, IPv6      bool // families of its endpoints; none: those of Addresses, else both
}

// A PortSpec is a port of a service, with the port of its endpoints.
type PortSpec struct {
	Port
	Target     uint16 // 0: by TargetName, else the same number
	TargetName string
}

// A SliceSpec is an EndpointSlice.
type SliceSpec struct {
	Name, Namespace string
	Service         string
	Ports           []SlicePort
	Endpoints       []SliceEndpoint
}

// A SlicePort is the number of the service's port of that name at every endpoint.
type SlicePort struct {
	Name   string
	Number uint16
}

// A SliceEndpoint is one endpoint of a slice.
type SliceEndpoint struct {
	Addresses []netip.Addr
	Ready     bool
	Serving   bool // terminating, but still answers
	Node      string
	Zone      string
	ForZones  []string // hints: the zones, and the nodes, whose clients are to use it
	ForNodes  []string
	Hostname  string
	Pod       string // its name; empty if it is not a pod
}

// A WorkloadSpec is a Pod that may have traffic, or a host. A pod that has ended is not one:
// its address may have a new owner.
type WorkloadSpec struct {
	Workload // without Ports and TLS

	Hostname, Subdomain string
	Ready               bool
	Kept                bool // it stopped being ready, or is again, a moment ago; its containers run on
	Terminating         bool
	NamedPorts          map[string]uint16
}

// A PolicySpec is a PeerAuthentication.
type PolicySpec struct {
	Name, Namespace string
	Created         time.Time
	Selector        map[string]string // none: the namespace, or from the root namespace the mesh
	Mode            Mode
	Ports           map[uint16]Mode // with a selector only
}

// A Mode is that of a policy. The zero value inherits from the next wider policy.
type Mode string

const (
	Unset          Mode = ""
	ModePermissive Mode = "PERMISSIVE"
	ModeStrict     Mode = "STRICT"
	ModeDisable    Mode = "DISABLE"
)

// A RouteSpec is an HTTPRoute or a GRPCRoute with services as parents.
type RouteSpec struct {
	Name, Namespace string
	GRPC            bool // a GRPCRoute
	Created         time.Time
	Generation      int64 // of the object; 0 in files
	Parents         []Parent
	Rules           []Route // without Port and Namespaces, their names those of the rules; backends without Host
}

// A Parent is a service that a route belongs to.
type Parent struct {
	Namespace, Name string
	Port            uint16 // 0: all its ports, or the one with the name Section
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

// Key is that of the Pod or the Host.
func (w *Workload) Key() Key {
	if w.Host {
		return Key{KindHost, w.Namespace, w.Name}
	}
	return Key{KindPod, w.Namespace, w.Name}
}

// Service returns the key of the Service.
func (p Parent) Service() Key { return Key{KindService, p.Namespace, p.Name} }

// ServicePorts returns the ports by number.
func (s *ServiceSpec) ServicePorts() []Port {
	if len(s.Ports) == 0 {
		return nil
	}
	out := make([]Port, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = p.Port
	}
	slices.SortStableFunc(out, func(a, b Port) int { return int(a.Number) - int(b.Number) })
	return out
}

// Selects reports whether a selector matches labels. An empty one matches nothing: the
// endpoints of a Service without a selector are in its slices.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return len(selector) > 0
}
