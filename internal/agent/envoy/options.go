package envoy

import (
	"encoding/json"
	"net/netip"
	"time"

	"outrider.dev/internal/contract"
)

// Options of one Envoy. The zero value of a field means its default.
type Options struct {
	Node         Node
	ControlPlane ControlPlane
	Admin        Endpoint // default: port 15000 of the loopback address
	Family       Family   // default: IPv4

	// Prometheus is the port of Envoy's own metrics, for the whole network, as in
	// Istio; default 15090. NoPrometheus leaves the listener out.
	Prometheus   uint16
	NoPrometheus bool

	Stats       Stats
	Log         Log
	Limits      Limits
	Concurrency int           // worker threads; default 2
	DrainTime   time.Duration // how long a drained listener still serves; whole seconds, default 45s

	// Runtime is Envoy's static runtime layer: a flag's name, and a bool, a number or
	// a string. What is here wins over our defaults.
	Runtime map[string]any

	// Extra is a JSON object that is merged into the bootstrap; see [Merge].
	Extra json.RawMessage
}

// A Node is the identity that this Envoy sends.
type Node struct {
	ID       string // required, for example "sidecar~10.0.0.7~app.ns~ns.svc.cluster.local"
	Cluster  string // default "outrider-proxy"
	Region   string
	Zone     string
	SubZone  string
	Metadata map[string]any // JSON values
}

// A ControlPlane is where Envoy's configuration comes from.
type ControlPlane struct {
	// Addresses are host:port, at least one. An address that is a name is resolved by
	// Envoy, again and again.
	Addresses []string

	// SNI is the server name in the handshake; default: the host of the first address that is
	// a name.
	SNI string

	// Identity is what the control plane's certificate must name: one of these, each a
	// SPIFFE URI or a DNS name. Default: the SNI.
	Identity []string

	// Secrets is the path of the Unix socket on which the agent tells [SecretName] and
	// [RootsName], by secret discovery (package sds). It must listen before Envoy starts,
	// or Envoy comes again after its back-off.
	Secrets string

	// Plaintext speaks without TLS. Only by explicit choice: any server on the address
	// then decides what the proxy does.
	Plaintext bool

	ConnectTimeout time.Duration // default 1s
	KeepAlive      time.Duration // an HTTP/2 ping each, answered within the same time; default 5s
}

// An Endpoint is Envoy's admin interface: a port of the loopback address, or a unix
// socket.
type Endpoint struct {
	Port   uint16
	Socket string // path; wins over a port that is not set
}

// A Family says which addresses Envoy listens on and prefers.
type Family uint8

// The families.
const (
	IPv4 Family = iota
	IPv6
	Dual
)

func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	case Dual:
		return "dual"
	}
	return "unknown family"
}

// loopback is the address on which Envoy and the agent talk.
func (f Family) loopback() netip.Addr {
	if f == IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Stats are the statistics that Envoy keeps besides those that the agent needs. Each
// cluster has hundreds of them: keeping all makes a start with many clusters two to
// three times slower (reference figures, section 7).
type Stats struct {
	All      bool // keep everything
	Prefixes []string
	Suffixes []string
	Regexps  []string // RE2
}

// Log says how much Envoy logs.
type Log struct {
	Level string // default "warning"

	// Components have a level of their own. "config" is raised to info whatever is
	// here: its line "all dependencies initialized" is how the agent learns that Envoy
	// is ready without polling it.
	Components map[string]string
}

// Limits protect the pod from its proxy.
type Limits struct {
	// Heap is the size in bytes past which Envoy first returns memory (at 95 %) and then
	// answers new requests with 503 (at 98 %). Zero is no limit.
	Heap uint64

	// Connections accepted at a time, over all listeners but the admin's and that of the
	// metrics. Zero is no limit.
	Connections uint64
}

// withDefaults returns o with every default in its place.
func (o Options) withDefaults() Options {
	fill(&o.Node.Cluster, contract.ProxyContainer)
	fill(&o.Prometheus, contract.PrometheusPort)
	fill(&o.Log.Level, "warning")
	fill(&o.Concurrency, 2)
	fill(&o.DrainTime, 45*time.Second)
	fill(&o.Limits.Connections, 1<<31-1)
	if o.Admin.Socket == "" {
		fill(&o.Admin.Port, contract.AdminPort)
	}
	cp := &o.ControlPlane
	fill(&cp.ConnectTimeout, time.Second)
	fill(&cp.KeepAlive, 5*time.Second)
	if cp.Plaintext {
		return o
	}
	for _, a := range cp.Addresses {
		host, _, err := splitAddress(a)
		if _, numeric := netip.ParseAddr(host); err == nil && numeric != nil {
			fill(&cp.SNI, host)
		}
	}
	if len(cp.Identity) == 0 && cp.SNI != "" {
		cp.Identity = []string{cp.SNI}
	}
	return o
}

// fill gives a field its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
