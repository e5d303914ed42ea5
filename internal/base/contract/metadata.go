package contract

import "time"

// Keys in the metadata of a proxy's node. The agent writes them into the bootstrap, and the control plane
// reads them.
const (
	MetadataNamespace      = "NAMESPACE"         // Istio's
	MetadataServiceAccount = "SERVICE_ACCOUNT"   // Istio's
	MetadataWorkload       = "WORKLOAD_NAME"     // Istio's
	MetadataAddresses      = "INSTANCE_IPS"      // Istio's; separated by commas
	MetadataInterception   = "INTERCEPTION_MODE" // Istio's; REDIRECT or TPROXY
	MetadataPush           = "OUTRIDER_PUSH"     // "full" requests every cluster, not only the ones in use; the control plane refuses it
	MetadataRenewed        = "RENEWED"           // "true": replaces a proxy that had too much configuration; the control plane omits clusters that earlier proxies of the workload used
	MetadataPrewarm        = "PREWARM"           // hosts or HOST:PORT, separated by commas, whose configuration is sent before the first use
	MetadataRelay          = "OUTRIDER_RELAY"    // "true": the agent relays the stream, and responds while the control plane is unreachable
	MetadataSecrets        = "SECRETS"           // SecretsCluster, if the agent serves the proxy's secrets
	MetadataCertificates   = "CERTIFICATES"      // the directory of the certificate files, if the agent does not serve the secrets
	MetadataSampling       = "SAMPLING"          // percentage of requests to trace, if the pod sets its own
	MetadataVersion        = "OUTRIDER_VERSION"  // of the agent
	MetadataIstioVersion   = "ISTIO_VERSION"     // Istio's: set if Istio's agent serves the secrets by Istio's names; a proxy with none of SECRETS, CERTIFICATES and this has no mutual TLS
	MetadataDNSCapture     = "DNS_CAPTURE"       // Istio's: set if its agent needs a table of names
)

// Files of the proxy's own certificates, in Istio's metadata.
const (
	MetadataServerCert = "TLS_SERVER_CERT_CHAIN"
	MetadataClientCert = "TLS_CLIENT_CERT_CHAIN"
)

// SecretsCluster is the bootstrap's cluster through which the agent serves the proxy's secrets. Istio's
// name.
const SecretsCluster = "sds-grpc"

// PassthroughCluster is the cluster that forwards a connection to its original destination. The agent's
// bootstrap contains it; for other bootstraps the control plane sends it. Istio's name.
const PassthroughCluster = "PassthroughCluster"

// DirectConnectTimeout limits the time for connecting to an address that the application chose. It exceeds the
// 127 s for which Linux repeats a SYN, so that the application's timeout or the kernel decides.
const DirectConnectTimeout = 130 * time.Second

// Names of the proxy's secrets, and of their files in the MetadataCertificates directory.
const (
	WorkloadSecret, WorkloadSecretFile = "workload", "workload.json"
	RootsSecret, RootsSecretFile       = "roots", "roots.json"
)

// Names of the same secrets at Istio's agent.
const IstioWorkloadSecret, IstioRootsSecret = "default", "ROOTCA"
