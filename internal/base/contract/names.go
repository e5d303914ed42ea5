package contract

import (
	"path"
	"strings"
)

// Containers that injection adds. A container of the user that has one of these names
// overrides fields of the injected one.
const (
	ProxyContainer = "outrider-proxy"
	InitContainer  = "outrider-init"

	IstioProxyContainer = "istio-proxy" // added by Istio's injection
)

// How the sentences about ignored objects begin, in /debug/problems and in the status of a
// proxy: an object that forbids something and does not, or any other.
const (
	ErrorPrefix   = "error: "
	WarningPrefix = "warning: "
)

// How the names of clusters begin that lead to an address and port, which follows.
const (
	HTTPCluster = "http|" // for requests
	TCPCluster  = "tcp|"  // for connections in which no HTTP was detected in time
	RawCluster  = "raw|"  // for bytes that are not HTTP, to a port that declares it
)

// ProxyUser is the uid and gid of the proxy, whose own traffic is not captured. Istio's.
const ProxyUser = 1337

// Volumes that injection adds.
const (
	BinVolume       = "outrider-bin"       // the agent's binary, for gates
	StateVolume     = "outrider-state"     // a directory for each container that publishes its state
	WorkVolume      = "outrider-work"      // what the agent writes: bootstrap, certificates, sockets
	PodInfoVolume   = "outrider-podinfo"   // the pod's annotations, by the downward API
	TokenVolume     = "outrider-token"     // the projected service account token
	RootVolume      = "outrider-root"      // the control plane's root certificates
	BootstrapVolume = "outrider-bootstrap" // a user's additions to Envoy's bootstrap
)

// Directories and files in a pod's containers.
const (
	// Dir is ours, with all below it: nothing else is mounted at, above or below it.
	Dir       = "/outrider"
	BinDir    = "/outrider/bin"
	AgentPath = BinDir + "/outrider-agent"
	// ImageBinDir is the directory of the proxy's image with the agent, for a volume of it.
	ImageBinDir = "usr/local/bin"

	StatesDir = "/outrider/state" // the states of all containers, read-only
	OwnDir    = "/outrider/own"   // the container's own directory in it
	ReadyFile = "ready.json"      // of the proxy's, in its directory: whether it is ready, and why not

	WorkDir         = "/etc/outrider/proxy"
	PodInfoDir      = "/etc/outrider/pod"
	AnnotationsFile = PodInfoDir + "/annotations"
	BootstrapDir    = "/etc/outrider/custom-bootstrap"
	BootstrapFile   = "custom_bootstrap.json"     // in BootstrapDir; Istio's name
	MeshConfigFile  = "/etc/outrider/config/mesh" // the mesh's configuration

	TokenDir  = "/var/run/secrets/tokens"
	TokenFile = TokenDir + "/outrider-token"
	RootDir   = "/var/run/secrets/outrider"
	RootFile  = RootDir + "/" + RootKey
)

// Overlap reports whether one of two directories is the other, or is in it. What is below /proc may be
// any directory: /proc/self/root is all of them.
func Overlap(a, b string) bool {
	below := func(dir string) string {
		if dir = path.Clean("/" + dir); strings.HasPrefix(dir, "/proc/") {
			return "/"
		}
		return strings.TrimSuffix(dir, "/") + "/"
	}
	return strings.HasPrefix(below(a), below(b)) || strings.HasPrefix(below(b), below(a))
}

// The ConfigMap with the control plane's root certificates, in each namespace.
const (
	RootConfigMap = "outrider-ca-root-cert"
	RootKey       = "root-cert.pem" // Istio's
)

// The ClusterTrustBundle with the same, of our signer's name, with which its own has to begin.
const (
	TrustSigner = "outrider.dev/mesh-root"
	TrustBundle = "outrider.dev:mesh-root:outrider"
)

// Objects in its namespace that the replicas of a control plane share.
const (
	// AuthoritySecret has the authority's files. It is made if there is none.
	AuthoritySecret = "outrider-ca"
	// SeenRootsSecret has the roots that were seen in a Secret which is not ours. It has no key.
	SeenRootsSecret = "outrider-seen-roots"
	// ServingSecret has the control plane's own certificate, where another authority signs those of
	// the proxies.
	ServingSecret = "outriderd-tls"
	// ServingFlag is the flag of outriderd serve with that Secret.
	ServingFlag = "--serving-certificate"
	// RouteStatusLease is held by the replica that writes the status of routes.
	RouteStatusLease = "outrider-route-status"
	// DiagnosisLease is held by the replica that diagnoses pods.
	DiagnosisLease = "outrider-diagnosis"
	// AuthoritySecretEnv is the variable of outriderd's containers with that Secret's name, or
	// another one's.
	AuthoritySecretEnv = "OUTRIDER_CA_SECRET"
	// MadeByLabel is on the objects that the control plane makes for itself, with its name as
	// the value. It writes and deletes no others.
	MadeByLabel = "outrider.dev/made-by"
	// KindLabel says what such an object is for, where there are several.
	KindLabel = "outrider.dev/kind"
	// UsedTokenPrefix begins the name of the ConfigMap of a host's token that was used; the
	// token's SHA-256 in hex follows.
	UsedTokenPrefix = "outrider-used-token-"
)
