package contract

import (
	"net/netip"
	"slices"
)

// Ports of the proxy's pod. All but the relay's are Istio's.
const (
	AdminPort      = 15000 // Envoy's admin interface, loopback only
	OutboundPort   = 15001 // captured outbound connections
	DebugPort      = 15004 // Istio's debug interface
	InboundPort    = 15006 // captured inbound connections
	RelayOutbound  = 15007 // outbound connections that the standby listener held, loopback only
	TunnelPort     = 15008 // HBONE, Istio's
	RelayInbound   = 15016 // the same for inbound connections
	StatusPort     = 15020 // the agent: readiness, merged metrics, probes of the app
	ReadinessPort  = 15021 // readiness, for the kubelet
	ProbePort      = 15002 // a port without a listener, to try a capture; Istio's --iptables-probe-port
	DNSPort        = 15053 // captured look-ups
	PrometheusPort = 15090 // Envoy's own metrics
)

// CaptureProof reports whether a connection to an address is the agent's proof that capture
// works. No host has one of these addresses (RFC 5737, RFC 3849); the first two are the
// proxy's own in the pod.
func CaptureProof(to netip.AddrPort) bool { return slices.Contains(proofs, to) }

var proofs = func() (out []netip.AddrPort) {
	for _, host := range []string{ProofInbound, ProofInbound6, ProofOutbound, ProofOutbound6} {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(host), ProbePort))
	}
	return out
}()

// Addresses of the proofs.
const (
	ProofInbound   = "127.0.0.6"
	ProofInbound6  = "::6"
	ProofOutbound  = "192.0.2.1"
	ProofOutbound6 = "2001:db8::1"
)

// ControlPlaneAddress is where a control plane installed as documented serves xDS and
// certificates: SecureDiscoveryPort.
const ControlPlaneAddress = "outriderd.outrider-system.svc:15012"

// Ports of the control plane.
const (
	DiscoveryPort       = 15010 // xDS, plain text
	SecureDiscoveryPort = 15012 // xDS and certificates, TLS
	MonitoringPort      = 15014
	WebhookPort         = 15017
)

// ReadyPath is where the agent says on StatusPort and ReadinessPort whether it is ready.
const ReadyPath = "/healthz/ready"

// CertificateExpiry is the agent's metric of the seconds until its certificate expires: 0 until it has
// one, absent if it requests none.
const CertificateExpiry = "outrider_agent_certificate_expiry_seconds"

// Where the agent makes the app's probes and hooks, on StatusPort: Istio's paths.
// ProbePath + CONTAINER + "/readyz", and then "/" + the value of ProbeKey if there is one.
// Instead of "readyz" there is also StartedProbe, which is no probe of the app: it succeeds
// once the command behind the container's gate has started up.
const (
	ProbePath = "/app-health/"
	HookPath  = "/app-lifecycle/"
	ProbeKey  = "OUTRIDER_PROBE_KEY" // variable of the agent

	StartedProbe = "startedz"

	// StopPath is the hook that lets the proxy drain inbound when the pod begins to stop.
	StopPath = HookPath + ProxyContainer + "/prestopz"
)

// ValidProbeKey reports whether a key can be the last part of a path and cannot be guessed:
// 16 to 128 letters, digits, '-' and '_'.
func ValidProbeKey(key string) bool {
	for _, r := range key {
		if (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_' {
			return false
		}
	}
	return len(key) >= 16 && len(key) <= 128
}

// StatusPath is where a control plane shows a page about itself, on MonitoringPort, to its own
// machine alone.
const StatusPath = "/debug/status"

// ControlPlaneName is a DNS name of each outriderd's certificate, whatever its other names are.
// Other control planes do not have it.
const ControlPlaneName = "outriderd"
