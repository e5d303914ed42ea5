// Package envoy is what the agent knows of Envoy: its bootstrap, its command line, its
// log lines and its admin interface. It starts nothing; package supervise does.
//
// [Options] are checked as a whole by [Options.Check] before a port is bound. They
// become a bootstrap ([Options.Bootstrap]) and arguments ([Options.Args]). [ParseLine] reads
// what Envoy logs, [Explain] finds in it why Envoy ended, and [Admin] controls a running one.
//
// All of it was tried with Envoy 1.40; the tests start that Envoy.
package envoy

import (
	"encoding/json"
	"net/netip"
	"time"

	"outrider.dev/internal/base/contract"
)

// Options of one Envoy. The zero value of a field means its default.
type Options struct {
	Node         Node
	ControlPlane ControlPlane
	Admin        Endpoint // default: port 15000 of the loopback address
	Family       Family   // default: IPv4

	// Prometheus is the port of Envoy's own metrics, for the whole network, as in
	// Istio; default 15090. PrometheusLocal binds it to the loopback address, NoPrometheus
	// leaves the listener out.
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

// A Node is the identity that this Envoy sends.
type Node struct {
	ID       string         // required, for example "sidecar~10.0.0.7~app.ns~ns.svc.cluster.local"
	Cluster  string         // default "outrider-proxy"
	Metadata map[string]any // JSON values
}

// A ControlPlane is the server of Envoy's configuration.
type ControlPlane struct {
	Address string // host:port; Envoy resolves a name again and again, and sends it as SNI

	// Relay is the path of the Unix socket on which the agent relays to Address. It must listen
	// before Envoy starts. Empty: Envoy connects by itself.
	Relay string

	// Identity is what the control plane's certificate must name: one of these, each a
	// SPIFFE URI or a DNS name. Default: the host of Address, if it is a name.
	Identity []string

	// Secrets is the path of the Unix socket on which the agent serves [SecretName] and
	// [RootsName], by secret discovery. It must listen before Envoy starts, or Envoy
	// connects again only after its back-off.
	Secrets string

	// Plaintext is without TLS. Only by explicit choice: any server on the address then
	// decides what the proxy does.
	Plaintext bool
}

// An Endpoint is Envoy's admin interface: a port of the loopback address, or a unix
// socket.
type Endpoint struct {
	Port   uint16
	Socket string // path; wins over a port that is not set
}

// A Family is the addresses that Envoy listens on and prefers.
type Family uint8

// The families.
const (
	IPv4 Family = iota
	IPv6
	Dual
)

// dns is Envoy's dns_lookup_family.
func (f Family) dns() string { return [...]string{IPv4: "V4_ONLY", IPv6: "V6_ONLY", Dual: "ALL"}[f] }

// loopback is the address of what Envoy and the agent serve to one another.
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

// Log are the levels of Envoy's log.
type Log struct {
	Level string // default "warning"

	// Components have a level of their own. "config" is raised to info always: by its line
	// "all dependencies initialized" the agent learns that Envoy is ready without polling.
	Components map[string]string
}

// withDefaults returns o with every default in its place.
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

// fill gives a field its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
