package contract

import (
	"net/netip"
	"strconv"
)

// Ports of the proxy's pod. All but the two relay ports have Istio's numbers.
const (
	AdminPort      = 15000 // Envoy's admin interface, loopback only
	OutboundPort   = 15001 // captured outbound connections
	DebugPort      = 15004 // Istio's debug interface
	InboundPort    = 15006 // captured inbound connections
	RelayOutbound  = 15007 // outbound connections that the standby listener held, loopback only
	TunnelPort     = 15008 // HBONE, Istio's
	RelayInbound   = 15016 // inbound connections that the standby listener held, loopback only
	StatusPort     = 15020 // the agent: readiness, merged metrics, probes of the app
	ReadinessPort  = 15021 // readiness, for the kubelet
	ProbePort      = 15002 // a port without a listener, for testing a capture; Istio's --iptables-probe-port
	DNSPort        = 15053 // captured DNS queries
	PrometheusPort = 15090 // Envoy's own metrics
)

// StatusPortOf returns the port of the agent, Outrider's or Istio's, in a pod with these annotations.
func StatusPortOf(annotations map[string]string) int {
	if n, err := strconv.ParseUint(annotations[StatusPortAnnotation], 10, 16); err == nil && n > 0 {
		return int(n)
	}
	return StatusPort
}

// Destinations of the agent's proofs that capture works. The agent connects to the proxy's own
// addresses in the pod, which the rules treat as inbound, and to addresses that belong to no host (RFC 5737, RFC
// 3849), which they treat as outbound.
var (
	ProofInbound   = netip.MustParseAddr("127.0.0.6")
	ProofInbound6  = netip.MustParseAddr("::6")
	ProofOutbound  = netip.MustParsePrefix("192.0.2.0/24")
	ProofOutbound6 = netip.MustParsePrefix("2001:db8::/32")
)

// Fields of each packet of a proof, by which the kernel hands it to the agent's listener and never to Envoy. With
// one hop to live, a packet that nothing redirects dies in the first router. The traffic class is for local use
// (pool 2 of RFC 2474).
const (
	ProofHops  = 1
	ProofClass = 43 << 2
)

// Ports to which outbound proofs connect.
const (
	// ProofPorts is the number of ports, from [ProbePort] or OldProofPort on, that are tried in turn.
	ProofPorts = 64
	// OldProofPort is the first port of those that rules of an older release may capture where they exempt those from
	// [ProbePort] on.
	OldProofPort = 5002
)

// CaptureProof reports whether a connection to an address is a proof that capture works.
func CaptureProof(to netip.AddrPort) bool {
	a, port := to.Addr(), to.Port()
	if OutboundProof(a) {
		return port >= ProbePort && port < ProbePort+ProofPorts || port >= OldProofPort && port < OldProofPort+ProofPorts
	}
	return port == ProbePort && (a == ProofInbound || a == ProofInbound6)
}

// OutboundProof reports whether outbound proofs go to an address.
func OutboundProof(a netip.Addr) bool { return ProofOutbound.Contains(a) || ProofOutbound6.Contains(a) }

// ControlPlaneAddress is the address (SecureDiscoveryPort) at which a control plane serves xDS and
// certificates if it was installed as documented.
const ControlPlaneAddress = "outriderd.outrider-system.svc:15012"

// Ports of the control plane.
const (
	DiscoveryPort       = 15010 // xDS, plain text
	SecureDiscoveryPort = 15012 // xDS and certificates, TLS
	MonitoringPort      = 15014
	WebhookPort         = 15017
)

// ReadyPath is the path on StatusPort and ReadinessPort at which the agent reports its readiness.
const ReadyPath = "/healthz/ready"

// CertificateExpiry is the agent's metric for the seconds until its certificate expires. It is 0 until
// there is a certificate, and absent if the agent requests none.
const CertificateExpiry = "outrider_agent_certificate_expiry_seconds"

// Paths on StatusPort at which the agent runs the app's probes and hooks. The paths are Istio's: ProbePath +
// CONTAINER + "/readyz", followed by "/" and the value of ProbeKey if that is set. StartedProbe in place of
// "readyz" is no probe of the app: it succeeds once the command behind the container's gate has started up.
const (
	ProbePath = "/app-health/"
	HookPath  = "/app-lifecycle/"
	ProbeKey  = "OUTRIDER_PROBE_KEY" // environment variable of the agent

	StartedProbe = "startedz"

	// StopPath is the hook that makes the proxy drain inbound connections when the pod begins to stop.
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

// StatusPath is the path on MonitoringPort at which a control plane shows a page about itself. Only processes
// on the control plane's own machine may read this page.
const StatusPath = "/debug/status"

// ControlPlaneName is a DNS name in each outriderd's certificate, in addition to its configured names.
// Certificates of other control planes do not contain it.
const ControlPlaneName = "outriderd"
