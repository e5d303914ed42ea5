// Package envoy contains the agent's knowledge of Envoy: its bootstrap, command line, log lines and
// admin interface. It starts no process; package supervise does.
//
// [Options.Check] checks the [Options] as a whole before the agent binds a port.
// [Options.Bootstrap] and [Options.Args] turn them into a bootstrap and arguments. [ParseLine]
// reads Envoy's log, [Explain] finds there why Envoy ended, and [Admin] controls a running Envoy.
//
// The tests start Envoy 1.40, whose behaviour is described here.
package envoy

import (
	"encoding/json"
	"net/netip"
	"time"

	"outrider.dev/internal/base/contract"
)

// Options configure one Envoy. The zero value of a field means its default.
type Options struct {
	Node         Node
	ControlPlane ControlPlane
	Admin        Endpoint // default: port 15000 of the loopback address
	Family       Family   // default: IPv4

	// Prometheus is the port of Envoy's own metrics, reachable from the whole network, as in Istio;
	// default 15090. PrometheusLocal binds it to the loopback address; NoPrometheus omits the
	// listener.
	Prometheus                    uint16
	PrometheusLocal, NoPrometheus bool

	Stats       Stats
	Log         Log
	Concurrency int           // worker threads; default 2
	DrainTime   time.Duration // how long a drained listener still serves; whole seconds, default 45s

	HotRestart HotRestart // default: none

	// Extra is a JSON object that is merged into the bootstrap; see [Merge].
	Extra json.RawMessage
}

// A Node is the identity that this Envoy sends to the control plane.
type Node struct {
	ID       string         // required, for example "sidecar~10.0.0.7~app.ns~ns.svc.cluster.local"
	Cluster  string         // default "outrider-proxy"
	Metadata map[string]any // JSON values
}

// A ControlPlane is the server of Envoy's configuration.
type ControlPlane struct {
	Address string // host:port; Envoy resolves a host name repeatedly, and sends it as SNI

	// Relay is the path of the Unix socket on which the agent accepts Envoy's connection to
	// Address. The socket must listen before Envoy starts. Empty: Envoy connects to Address
	// directly.
	Relay string

	// Identity lists SPIFFE URIs or DNS names. The control plane's certificate must name one of
	// them. Default: the host of Address, if it is a name.
	Identity []string

	// Secrets is the path of the Unix socket on which the agent serves [SecretName] and [RootsName]
	// by secret discovery. The socket must listen before Envoy starts; otherwise Envoy retries only
	// after its back-off.
	Secrets string

	// Plaintext disables TLS. It must be chosen explicitly: any server at the address then controls
	// the proxy.
	Plaintext bool
}

// An Endpoint is Envoy's admin interface: a port of the loopback address, or a unix
// socket.
type Endpoint struct {
	Port   uint16
	Socket string // path; wins over a port that is not set
}

// A Family selects the addresses on which Envoy listens and which it prefers.
type Family uint8

// The families.
const (
	IPv4 Family = iota
	IPv6
	Dual
)

// dns returns Envoy's dns_lookup_family.
func (f Family) dns() string { return [...]string{IPv4: "V4_ONLY", IPv6: "V6_ONLY", Dual: "ALL"}[f] }

// loopback returns the address on which Envoy and the agent serve each other.
func (f Family) loopback() netip.Addr {
	if f == IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// Stats are the statistics that Envoy keeps besides those that the agent needs. Each
// cluster has hundreds of them: keeping all makes a start with many clusters two to
// three times slower.
type Stats struct {
	Prefixes []string
	Suffixes []string
	Regexps  []string // RE2
}

// A Log sets the levels of Envoy's log.
type Log struct {
	Level string // default "warning"

	// Components maps components to their own levels. "config" is always raised to info: its line
	// "all dependencies initialized" tells the agent without polling that Envoy is ready.
	Components map[string]string
}

// withDefaults returns o with all defaults filled in.
func (o Options) withDefaults() Options {
	fill(&o.Node.Cluster, contract.ProxyContainer)
	fill(&o.Prometheus, contract.PrometheusPort)
	fill(&o.Log.Level, "warning")
	fill(&o.Concurrency, 2)
	fill(&o.DrainTime, 45*time.Second)
	if o.Admin.Socket == "" {
		fill(&o.Admin.Port, contract.AdminPort)
	}
	if host, _, err := splitAddress(o.ControlPlane.Address); err == nil && isName(host) && len(o.ControlPlane.Identity) == 0 {
		o.ControlPlane.Identity = []string{host}
	}
	return o
}

// fill sets a field that is zero to its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
