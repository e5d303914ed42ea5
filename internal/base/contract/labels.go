package contract

// Labels and annotations by which a namespace or a pod requests injection.
const (
	InjectLabel          = "sidecar.istio.io/inject" // Istio's
	NamespaceLabel       = "istio-injection"         // Istio's
	RevisionLabel        = "istio.io/rev"            // Istio's
	OwnInjectLabel       = "outrider.dev/inject"
	OwnNamespaceLabel    = "outrider.dev/injection"
	TLSModeLabel         = "security.istio.io/tlsMode"          // Istio's; istio: the pod accepts mutual TLS
	PodSecurityLabel     = "pod-security.kubernetes.io/enforce" // Kubernetes'
	IstioAnnotation      = "sidecar.istio.io/"                  // the prefix of Istio's annotations
	IstioTraffic         = "traffic.sidecar.istio.io/"
	IstioReadiness       = "readiness.status.sidecar.istio.io/"
	ProxyConfig          = "proxy.istio.io/config"
	InterceptionMode     = "sidecar.istio.io/interceptionMode"
	NativeSidecar        = "sidecar.istio.io/nativeSidecar"
	RewriteProbes        = "sidecar.istio.io/rewriteAppHTTPProbers"
	StatusPortAnnotation = "status.sidecar.istio.io/port"
	IstioStatus          = "sidecar.istio.io/status" // what Istio injected
)

// DefaultRevision is the revision if a label does not name one.
const DefaultRevision = "default"

// Our own annotations. The package inject has a table of all of them, with their values.
const (
	Prefix        = "outrider.dev/"
	DependsOn     = Prefix + "depends-on"     // the edges of a pod; with the suffix ".NAME", of one container
	Start         = Prefix + "start"          // how the start is ordered: gate, native, hold or off
	Capture       = Prefix + "capture"        // none: no connection is captured
	Proxy         = Prefix + "proxy"          // none: no proxy
	Init          = Prefix + "init"           // none: no init container of ours
	NativeRelease = Prefix + "native-release" // hook or probe
	Park          = Prefix + "park"           // on, off or require
	Prewarm       = Prefix + "prewarm"        // hosts whose configuration is fetched before the first request
	Status        = Prefix + "status"         // set by injection: what was injected
	Overrides     = Prefix + "overrides"      // set by injection: the pod's values that were changed
)

// IgnoredNamespaces are never injected (Istio: pkg/kube/inject/initializer.go).
var IgnoredNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}
