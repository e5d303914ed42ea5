// Package config is the configuration of an agent, read and checked as a whole before a
// port is bound: flags, variables and files, by Istio's names and with Istio's meaning.
//
// Sources, a later one wins: our defaults, the mesh's defaultConfig, the variable
// PROXY_CONFIG, the pod's annotation proxy.istio.io/config, the variables and flags of
// one setting. (Istio's order: pkg/config/mesh and cmd/config.go of pilot-agent.)
//
// Three tables say what there is: settings of a ProxyConfig (proxyconfig.go), variables
// (variables.go), flags (flags.go). What a table knows and has no effect here gets a
// note, never silence.
package config

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"outrider.dev/internal/base/contract"
)

// A Config is the configuration of an agent.
type Config struct {
	Pod          Pod
	ControlPlane ControlPlane
	Certificate  Certificate
	Envoy        Envoy
	Ports        Ports
	Stop         Stop

	Work        string // directory for the bootstrap and the certificates; the agent writes nowhere else
	States      string // the volume of all containers' states, for gates; see package state
	Own         string // this container's directory in it; if it does not exist, no gate waits
	NoStandby   bool   // do not listen in Envoy's place: what comes early is parked or refused
	DNS         bool   // answer names on Ports.DNS
	Prewarm     []string
	AppProbes   json.RawMessage // ISTIO_KUBE_APP_PROBERS
	AppMetrics  json.RawMessage // ISTIO_PROMETHEUS_ANNOTATIONS
	Callers     Callers
	Annotations string     // file of the pod's annotations, by the downward API
	LogLevel    slog.Level // of the agent's own log

	Notes []string // what was set and has no effect, one sentence each
}

// A Pod is where the agent runs; it may be a bare host.
type Pod struct {
	Role           string // sidecar
	Name           string
	Namespace      string
	ServiceAccount string
	Addresses      []netip.Addr
	Domain         string // of its short names, for example "shop.svc.cluster.local"
	TrustDomain    string
	Labels         map[string]string // of the pod, as they were when the agent started
	Metadata       map[string]any    // of Envoy's node, for the control plane
}

// ID is Envoy's node ID, in Istio's form.
func (p Pod) ID() string {
	address := "127.0.0.1"
	if len(p.Addresses) > 0 {
		address = p.Addresses[0].String()
	}
	return p.Role + "~" + address + "~" + p.Name + "." + p.Namespace + "~" + p.Domain
}

// Callers are who may call the agent on its status port, besides the pod itself.
type Callers struct {
	Node    []netip.Addr   // HOST_IP
	Probe   []netip.Prefix // where the kubelet's probes come from, besides Node and the default gateways
	Key     string         // at the end of the paths of the kubelet's probes; empty: they are known by their address
	Metrics []netip.Prefix // who may get the metrics, besides Node; nil: all
}

// A ControlPlane is the server of the agent and its Envoy.
type ControlPlane struct {
	Address   string   // host:port, for configuration
	CA        string   // host:port, for certificates; default: Address
	Names     []string // one of them must be in its certificate; default: the host of Address
	Roots     string   // file with the trusted roots
	Token     string   // file with the token that authenticates the workload
	Plaintext bool     // no TLS
}

// Certificate is how the workload's certificate is got and kept.
type Certificate struct {
	Lifetime    time.Duration // to request; 0: the control plane's default
	RenewAt     float64       // share of the lifetime
	Jitter      float64       // of RenewAt, to both sides
	RSA         int           // key size, 2048; 0: ECDSA
	Curve       string        // P256 or P384
	Output      string        // directory for copies as PEM files; empty: none
	FileMounted bool          // it is there already, as files in Output's form
}

// Envoy is how the proxy runs.
type Envoy struct {
	Path        string // default "envoy" from PATH
	Cluster     string // its own service's name
	Concurrency int    // worker threads; default: CPUs, else 2
	CPUs        int    // the container's limit, rounded up; 0: not known
	Level       string
	Components  map[string]string
	DrainTime   time.Duration // whole seconds
	Stats       Stats
	Extra       json.RawMessage // merged into the bootstrap
	Sampling    string          // percent of the requests that are traced; empty: as in the mesh
	Resource    string          // more attributes of its spans' resource, as OpenTelemetry has them: a=b,c=d
	RenewAfter  time.Duration   // replace it if it has served so long, has grown and is idle; 0: never
}

// Stats are statistics to keep besides those that the agent needs.
type Stats struct{ Prefixes, Suffixes, Regexps []string }

// Ports that the pod's parts meet on. Istio's numbers by default.
type Ports struct {
	Admin      uint16 // Envoy's, loopback
	Outbound   uint16
	Inbound    uint16
	Status     uint16
	Readiness  uint16
	DNS        uint16
	Prometheus uint16 // Envoy's own metrics

	RelayOutbound uint16 // Envoy's listeners for what the standby held, loopback
	RelayInbound  uint16
}

// Stop is how the proxy leaves.
type Stop struct {
	Grace   time.Duration // of the pod, from SIGTERM to SIGKILL
	Drain   time.Duration // stay at least so long where nothing proves that the apps have ended
	Minimum time.Duration // with OnZero: look at connections only after this
	OnZero  bool          // leave when Envoy has no connection
	Ordered bool          // the kubelet ends this container after all applications: a native sidecar
	Apps    []string      // the applications' containers
}

// Default is the configuration without any setting.
func Default() Config {
	return Config{
		Pod:          Pod{Role: "sidecar", TrustDomain: "cluster.local"},
		ControlPlane: ControlPlane{Address: contract.ControlPlaneAddress, Roots: contract.RootFile, Token: contract.TokenFile},
		Certificate:  Certificate{RenewAt: 0.5, Jitter: 0.01, Curve: "P256"},
		Envoy:        Envoy{Path: "envoy", Cluster: contract.ProxyContainer, Level: "warning", DrainTime: 45 * time.Second, RenewAfter: time.Hour},
		Ports: Ports{
			Admin: contract.AdminPort, Outbound: contract.OutboundPort, Inbound: contract.InboundPort, Status: contract.StatusPort,
			Readiness: contract.ReadinessPort, DNS: contract.DNSPort, Prometheus: contract.PrometheusPort,
			RelayOutbound: contract.RelayOutbound, RelayInbound: contract.RelayInbound,
		},
		Stop:        Stop{Grace: 30 * time.Second, Drain: 5 * time.Second, Minimum: 5 * time.Second},
		Work:        contract.WorkDir,
		States:      contract.StatesDir,
		Own:         contract.OwnDir,
		Annotations: contract.AnnotationsFile,
	}
}
