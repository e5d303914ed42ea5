// Package config reads the configuration of an agent (flags, variables and files, by Istio's names
// and with Istio's meaning) and checks all of it before the agent binds a port.
//
// These are the sources; each overrules those before it: our defaults, the mesh's defaultConfig,
// the variable PROXY_CONFIG, the pod's annotation proxy.istio.io/config, variables and flags for
// one setting each. (Istio's order: pkg/config/mesh and cmd/config.go of pilot-agent.)
//
// Three tables list the known settings: fields of a ProxyConfig (proxyconfig.go), variables
// (variables.go), flags (flags.go). A setting that is in a table and has no effect here always gets
// a note.
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

	Work      string // directory for the bootstrap and the certificates; the agent writes nowhere else
	States    string // the volume for the states of all containers, which gates read; see package state
	Own       string // this container's directory in States; if it does not exist, no gate waits for this container
	NoStandby bool   // do not listen in Envoy's place: early connections are parked or refused
	DNS       bool   // answer DNS queries on Ports.DNS

	// CaptureProof is the pause between two proofs that connections come to the proxy.
	CaptureProof time.Duration
	// CaptureFamilies are the IP families that are captured: ipv4, ipv6, dual, or auto for those of the pod.
	CaptureFamilies string

	Prewarm     []string
	AppProbes   json.RawMessage // ISTIO_KUBE_APP_PROBERS
	AppMetrics  json.RawMessage // ISTIO_PROMETHEUS_ANNOTATIONS
	Callers     Callers
	Annotations string     // file of the pod's annotations, written by the downward API
	LogLevel    slog.Level // of the agent's own log

	Notes []string // one sentence for each setting that has no effect
}

// A Pod describes the pod, or the bare host, in which the agent runs.
type Pod struct {
	Role           string // always "sidecar"
	Name           string
	Namespace      string
	ServiceAccount string
	Addresses      []netip.Addr
	Domain         string // of the pod's short names, for example "shop.svc.cluster.local"
	TrustDomain    string
	Labels         map[string]string // of the pod, at the agent's start
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

// Callers are the addresses that may call the agent on its status port, besides the pod itself.
type Callers struct {
	Node    []netip.Addr   // HOST_IP
	Probe   []netip.Prefix // sources of the kubelet's probes, besides Node and the default gateways
	Key     string         // last part of the paths of the kubelet's probes; empty: probes are recognised by their address
	Metrics []netip.Prefix // may get the metrics, besides Node; nil: all may
}

// A ControlPlane is the server from which the agent and its Envoy get configuration and
// certificates.
type ControlPlane struct {
	Address   string   // host:port, for configuration
	CA        string   // host:port, for certificates; default: Address
	Names     []string // the server's certificate must contain one of these names; default: the host of Address
	Roots     string   // file with the trusted roots
	Token     string   // file with the token that authenticates the workload
	Plaintext bool     // no TLS
}

// Certificate configures how the agent gets and renews the workload's certificate.
type Certificate struct {
	Lifetime    time.Duration // lifetime to request; 0: the control plane's default
	RenewAt     float64       // share of the lifetime that is left when a renewal is due
	Jitter      float64       // largest random deviation from RenewAt, in both directions
	RSA         int           // key size, 2048; 0: ECDSA
	Curve       string        // P256 or P384
	Output      string        // directory for copies as PEM files; empty: none
	FileMounted bool          // another program writes the certificate, as files with the same names as in Output
}

// Envoy configures the proxy's process.
type Envoy struct {
	Path        string // default "envoy" from PATH
	Cluster     string // name of the pod's own service
	Concurrency int    // worker threads; default: CPUs, else 2
	CPUs        int    // the container's limit, rounded up; 0: not known
	Level       string
	Components  map[string]string
	DrainTime   time.Duration // whole seconds
	Stats       Stats
	Extra       json.RawMessage // merged into the bootstrap
	Sampling    string          // percent of the requests that are traced; empty: the mesh's setting
	Resource    string          // more resource attributes of Envoy's spans, in OpenTelemetry's form: a=b,c=d
	RenewAfter  time.Duration   // replace Envoy once it has served this long, has grown and is idle; 0: never
}

// Stats select statistics that Envoy keeps besides those that the agent needs.
type Stats struct{ Prefixes, Suffixes, Regexps []string }

// Ports are the ports on which the parts of a pod reach one another. The defaults are Istio's.
type Ports struct {
	Admin      uint16 // Envoy's admin interface, loopback
	Outbound   uint16
	Inbound    uint16
	Status     uint16
	Readiness  uint16
	DNS        uint16
	Prometheus uint16 // Envoy's own metrics

	RelayOutbound uint16 // Envoy's listeners for connections that the standby held, loopback
	RelayInbound  uint16
}

// Stop configures how the proxy stops.
type Stop struct {
	Grace   time.Duration // of the pod, from SIGTERM to SIGKILL
	Drain   time.Duration // stay at least this long if nothing proves that the applications have ended
	Minimum time.Duration // with OnZero: do not count connections before this time
	OnZero  bool          // leave when Envoy has no connection
	Ordered bool          // the kubelet ends this container after all applications: a native sidecar
	Apps    []string      // the applications' containers
}

// Default returns the default configuration.
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
		Stop:         Stop{Grace: 30 * time.Second, Drain: 5 * time.Second, Minimum: 5 * time.Second},
		CaptureProof: 30 * time.Second, CaptureFamilies: "auto",

		Work:        contract.WorkDir,
		States:      contract.StatesDir,
		Own:         contract.OwnDir,
		Annotations: contract.AnnotationsFile,
	}
}
