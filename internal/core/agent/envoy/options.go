// Package envoy contains the agent's knowledge of Envoy: its bootstrap, command line, log lines and
// admin interface. It starts no process; package supervise does.
//
// [Options.Check] checks the [Options] as a whole before the agent binds a port. [Options.Bootstrap] and
// [Options.Args] turn them into a bootstrap and arguments. [ParseLine] reads Envoy's log, [Explain] finds in it
// the reason why Envoy ended, and [Admin] controls a running Envoy.
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
	Node   Node
	Admin  Endpoint // default: port 15000 of the loopback address
	Family Family   // default: IPv4

	// Relay and Secrets are the paths of two Unix sockets of the agent. From Relay, Envoy gets its
	// configuration; from Secrets it gets [SecretName] and [RootsName] by secret discovery. The agent must
	// listen on both before Envoy starts; otherwise Envoy retries only after its back-off. Relay is required.
	// Without Secrets, Envoy gets no secrets, as in a mesh without TLS.
	Relay, Secrets string

	// Prometheus is the port of Envoy's own metrics, reachable from the whole network, as in Istio;
	// default 15090. PrometheusLocal binds it to the loopback address; NoPrometheus omits the
	// listener.
	Prometheus                    uint16
	PrometheusLocal, NoPrometheus bool

	Stats       Stats
	Log         Log
	Concurrency int           // worker threads; default 2
	DrainTime   time.Duration // time for which a draining listener still serves; whole seconds, default 45s

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

// An Endpoint is Envoy's admin interface: a port of the loopback address, or a unix
// socket.
type Endpoint struct {
	Port   uint16
	Socket string // path; if it is set, Port is not used
}

// A Family selects the addresses on which Envoy listens.
type Family uint8

// The IP families.
const (
	IPv4 Family = iota
	IPv6
	Dual
)

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
	return o
}

// fill sets a field that is zero to its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
