package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// A Part is an object from a source: one of the Spec types. It must not be changed after
// [build.Builder.Set].
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

// A ServiceSpec is a Kubernetes Service.
type ServiceSpec struct {
	Name, Namespace string
	Addresses       []netip.Addr
	External        string
	Headless        bool
	Ports           []PortSpec
	ExportTo        []string
	Traffic         Traffic

	// Selector selects the workloads that are its endpoints, if it has no [SliceSpec].
	Selector        map[string]string
	PublishNotReady bool
	IPv4, IPv6      bool // families of its endpoints; neither: those of Addresses, or else both
}

// A PortSpec is a port of a service, with the corresponding port of its endpoints.
type PortSpec struct {
	Port
	Target     uint16 // 0: given by TargetName, or else the same number
	TargetName string
}

// A SliceSpec is an EndpointSlice.
type SliceSpec struct {
	Name, Namespace string
	Service         string
	Ports           []SlicePort
	Endpoints       []SliceEndpoint
}

// A SlicePort is the number that a named port of the service has at every endpoint.
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
	ForZones  []string // hints: the zones and nodes whose clients should use it
	ForNodes  []string
	Hostname  string
	Pod       string // name of the pod; empty if the endpoint is not a pod
}

// A WorkloadSpec is a Pod that may have traffic, or a host. A pod that has ended has no part, because
// its address may belong to another one now.
type WorkloadSpec struct {
	Workload // Ports and TLS are unset

	Hostname, Subdomain string
	Ready               bool
	Kept                bool // its readiness changed a moment ago, while its containers kept running
	Terminating         bool
	NamedPorts          map[string]uint16
}

// A PolicySpec is a PeerAuthentication.
type PolicySpec struct {
	Name, Namespace string
	Created         time.Time
	Selector        map[string]string // none: applies to the namespace, or from the root namespace to the mesh
	Mode            Mode
	Ports           map[uint16]Mode // only with a selector
}

// A Mode is a mode in a policy. The zero value inherits from the next wider policy.
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
	Rules           []Route // with the names of rules; Port, Namespaces and the backends' Host are unset
}

// A Parent is a service to which a route is attached.
type Parent struct {
	Namespace, Name string
	Port            uint16 // 0: all ports, or the port named Section
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

// Selects reports whether a selector matches labels. An empty selector matches nothing, because a
// Service without one gets its endpoints from slices.
func Selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return len(selector) > 0
}
