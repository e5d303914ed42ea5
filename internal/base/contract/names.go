package contract

import (
	"path"
	"strings"
)

// Containers that injection adds. If the user defines a container with one of these names, the user's fields
// override the fields of the injected container.
const (
	ProxyContainer = "outrider-proxy"
	InitContainer  = "outrider-init"

	IstioProxyContainer = "istio-proxy" // added by Istio's injection
)

// Prefixes of the sentences about ignored objects in /debug/problems and in the status of a proxy: the
// first is for objects that should forbid something and do not, the second for all others.
const (
	ErrorPrefix   = "error: "
	WarningPrefix = "warning: "
)

// Prefixes of the names of clusters that lead to a single address. The name continues with the address and its
// port.
const (
	HTTPCluster = "http|" // for requests
	TCPCluster  = "tcp|"  // for connections on which no HTTP was detected in time
	RawCluster  = "raw|"  // for non-HTTP bytes, to a port that is declared as HTTP
)

// ProxyUser is the uid and gid of the proxy, whose own traffic is not captured. Istio's value.
const ProxyUser = 1337

// Volumes that injection adds.
const (
	BinVolume       = "outrider-bin"       // the agent's binary, for gates
	StateVolume     = "outrider-state"     // a directory for each container that publishes its state
	WorkVolume      = "outrider-work"      // files that the agent writes: bootstrap, certificates, sockets
	PodInfoVolume   = "outrider-podinfo"   // the pod's annotations, through the downward API
	TokenVolume     = "outrider-token"     // the projected service account token
	RootVolume      = "outrider-root"      // the control plane's root certificates
	BootstrapVolume = "outrider-bootstrap" // the user's additions to Envoy's bootstrap
)

// Directories and files in a pod's containers.
const (
	// Dir is reserved for Outrider: nothing else is mounted at, above or below it.
	Dir       = "/outrider"
	BinDir    = "/outrider/bin"
	AgentPath = BinDir + "/outrider-agent"
	// ImageBinDir is the directory of the agent in the proxy's image, for a volume of that image.
	ImageBinDir = "usr/local/bin"

	StatesDir = "/outrider/state" // the states of all containers, read-only
	OwnDir    = "/outrider/own"   // the container's own directory in it
	ReadyFile = "ready.json"      // in the proxy's own directory: whether the proxy is ready, and if not why

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

// Overlap reports whether two directories are equal or one contains the other. It treats any path below
// /proc as overlapping, because it may lead anywhere: /proc/self/root is the root directory.
func Overlap(a, b string) bool {
	below := func(dir string) string {
		if dir = path.Clean("/" + dir); strings.HasPrefix(dir, "/proc/") {
			return "/"
		}
		return strings.TrimSuffix(dir, "/") + "/"
	}
	return strings.HasPrefix(below(a), below(b)) || strings.HasPrefix(below(b), below(a))
}

// The ConfigMap in each namespace with the control plane's root certificates.
const (
	RootConfigMap = "outrider-ca-root-cert"
	RootKey       = "root-cert.pem" // Istio's
)

// The ClusterTrustBundle with the same certificates. Its name must begin with the name of its signer.
const (
	TrustSigner = "outrider.dev/mesh-root"
	TrustBundle = "outrider.dev:mesh-root:outrider"
)

// Objects in the control plane's namespace that its replicas share.
const (
	// AuthoritySecret contains the authority's files. It is created if it does not exist.
	AuthoritySecret = "outrider-ca"
	// SeenRootsSecret contains the roots that were seen in a Secret which Outrider does not own. It
	// contains no key.
	SeenRootsSecret = "outrider-seen-roots"
	// ServingSecret contains the control plane's own certificate when another authority signs the proxies'
	// certificates.
	ServingSecret = "outriderd-tls"
	// ServingFlag is the flag of "outriderd serve" that names this Secret.
	ServingFlag = "--serving-certificate"
	// RouteStatusLease is held by the replica that writes the status of routes.
	RouteStatusLease = "outrider-route-status"
	// DiagnosisLease is held by the replica that diagnoses pods.
	DiagnosisLease = "outrider-diagnosis"
	// AuthoritySecretEnv is the environment variable of outriderd's containers with the name of the
	// authority's Secret, which may differ from AuthoritySecret.
	AuthoritySecretEnv = "OUTRIDER_CA_SECRET"
	// MadeByLabel is set on the objects that the control plane creates for itself; its value is the control
	// plane's name. The control plane writes and deletes no other objects.
	MadeByLabel = "outrider.dev/made-by"
	// KindLabel distinguishes the purposes of such objects, where there are several.
	KindLabel = "outrider.dev/kind"
	// UsedTokenPrefix, followed by the SHA-256 of a host's token in hex, is the name of a ConfigMap that marks
	// the token as used.
	UsedTokenPrefix = "outrider-used-token-"
)
