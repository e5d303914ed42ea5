package contract

import "time"

// Keys of the metadata of a proxy's node: the agent writes them into the bootstrap, the
// control plane reads them.
const (
	MetadataNamespace      = "NAMESPACE"         // Istio's
	MetadataServiceAccount = "SERVICE_ACCOUNT"   // Istio's
	MetadataWorkload       = "WORKLOAD_NAME"     // Istio's
	MetadataAddresses      = "INSTANCE_IPS"      // Istio's; separated by commas
	MetadataInterception   = "INTERCEPTION_MODE" // Istio's; REDIRECT or TPROXY
	MetadataPush           = "OUTRIDER_PUSH"     // full, which is refused: everything is pushed
	MetadataRenewed        = "RENEWED"           // "true": in place of one with too much: no clusters that earlier proxies of the workload used
	MetadataPrewarm        = "PREWARM"           // host or host:port, separated by commas: sent before the first use
	MetadataRelay          = "OUTRIDER_RELAY"    // "true": the agent relays the stream, and responds while the control plane is away
	MetadataSecrets        = "SECRETS"           // SecretsCluster, if the agent serves the proxy's secrets
	MetadataCertificates   = "CERTIFICATES"      // or the directory of their files
	MetadataSampling       = "SAMPLING"          // percent of the requests that are traced, if the pod has its own
	MetadataVersion        = "OUTRIDER_VERSION"  // of the agent
	MetadataIstioVersion   = "ISTIO_VERSION"     // Istio's: its agent serves secrets by Istio's names; none of the three: no mutual TLS
	MetadataDNSCapture     = "DNS_CAPTURE"       // Istio's: its agent needs a table of names
)

// Files of the proxy's own certificates, in the metadata of Istio's.
const (
	MetadataServerCert = "TLS_SERVER_CERT_CHAIN"
	MetadataClientCert = "TLS_CLIENT_CERT_CHAIN"
)

// SecretsCluster is the cluster of the bootstrap by which the agent serves the proxy's
// secrets. Istio's name.
const SecretsCluster = "sds-grpc"

// PassthroughCluster is the cluster that connects to a connection's original destination:
// in the agent's bootstrap, and for other bootstraps from the control plane. Istio's name.
const PassthroughCluster = "PassthroughCluster"

// DirectConnectTimeout limits a connection to an address that the application chose. It is
// longer than Linux repeats a SYN, 127 s, so that the application's timeout or the kernel decides.
const DirectConnectTimeout = 130 * time.Second

// Names of the proxy's secrets, and of their files in the directory of MetadataCertificates.
const (
	WorkloadSecret, WorkloadSecretFile = "workload", "workload.json"
	RootsSecret, RootsSecretFile       = "roots", "roots.json"
)

// Names of the same secrets at Istio's agent.
const IstioWorkloadSecret, IstioRootsSecret = "default", "ROOTCA"
