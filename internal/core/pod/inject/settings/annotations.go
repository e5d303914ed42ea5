package settings

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
)

// Names of the annotations that the code refers to. The table below lists all annotations.
const (
	MergeKey         = "prometheus.istio.io/merge-metrics"
	ScrapeKey        = "prometheus.istio.io/scrape-targets"
	ImageKey         = "sidecar.istio.io/proxyImage"
	ImageTypeKey     = "sidecar.istio.io/proxyImageType"
	BootstrapKey     = "sidecar.istio.io/bootstrapOverride"
	VolumeKey        = "sidecar.istio.io/userVolume"
	MountKey         = "sidecar.istio.io/userVolumeMount"
	BindKey          = "sidecar.istio.io/capNetBindService"
	DiscoveryKey     = "sidecar.istio.io/discoveryAddress"
	TemplatesKey     = "inject.istio.io/templates"
	LogKey           = "sidecar.istio.io/logLevel"
	ComponentLogKey  = "sidecar.istio.io/componentLogLevel"
	AgentLogKey      = "sidecar.istio.io/agentLogLevel"
	RerouteKey       = "istio.io/reroute-virtual-interfaces"
	KubevirtKey      = "traffic.sidecar.istio.io/kubevirtInterfaces"
	DefaultContainer = "kubectl.kubernetes.io/default-container"
	DefaultLogs      = "kubectl.kubernetes.io/default-logs-container"
)

// An annotation is an entry in the table of the annotations that a pod can have, or of the labels.
type annotation struct {
	name     string
	means    string
	without  string // the reason why it has no effect; empty if it has an effect
	inNoMesh bool   // no other mesh reads it either
	notPods  bool   // it is not of pods, but of another kind of object
	check    func(string) error
	same     string // a value that only requests the default behaviour, so that it causes no warning
	lenient  bool   // an invalid value is ignored, as in Istio, and the pod is not refused
}

// annotations lists all known annotations, including those without effect. A pod with an invalid value is
// refused, as in Istio's validate.go.
var annotations = []annotation{
	{name: contract.InjectLabel, means: "\"true\" or \"false\": whether to inject; as a label it goes first"},
	{name: contract.OwnInjectLabel, means: "as " + contract.InjectLabel},
	{name: contract.ProxyConfig, means: "a ProxyConfig for this pod; the agent reads it too"}, // package settings checks it
	{name: contract.NativeSidecar, means: "whether the proxy is a restartable init container"},
	{name: contract.InterceptionMode, means: "how connections come to the proxy", check: Modes},
	{name: contract.IstioTraffic + "includeInboundPorts", means: "inbound ports to capture, or *", check: portsOrAll},
	{name: contract.IstioTraffic + "excludeInboundPorts", means: "inbound ports not to capture", check: ports},
	{name: contract.IstioTraffic + "includeOutboundIPRanges", means: "address ranges to capture, or *", check: rangesOrAll},
	{name: contract.IstioTraffic + "excludeOutboundIPRanges", means: "address ranges not to capture", check: ranges},
	{name: contract.IstioTraffic + "includeOutboundPorts", means: "outbound ports to capture whatever the address", check: portsOrAll},
	{name: contract.IstioTraffic + "excludeOutboundPorts", means: "outbound ports not to capture", check: ports},
	{name: contract.IstioTraffic + "excludeInterfaces", means: "interfaces on which nothing is captured", check: interfaces},
	{name: RerouteKey, means: "interfaces whose inbound traffic is a guest's outbound traffic", check: interfaces},
	{name: KubevirtKey, means: "the older name of " + RerouteKey, check: interfaces},
	{name: contract.StatusPortAnnotation, means: "port of the agent; 0: no probes of the proxy", check: portOrZero},
	{name: contract.IstioReadiness + "initialDelaySeconds", means: "of the proxy's readiness probe", check: number},
	{name: contract.IstioReadiness + "periodSeconds", means: "of the proxy's readiness probe", check: number},
	{name: contract.IstioReadiness + "failureThreshold", means: "of the proxy's readiness probe", check: number},
	{name: contract.IstioReadiness + "applicationPorts", inNoMesh: true, without: "readiness of the proxy does not depend on the application"},
	{name: contract.RewriteProbes, means: "whether the agent makes the app's HTTP, TCP and gRPC probes"},
	{name: MergeKey, means: "whether the agent serves the app's metrics with its own", check: boolean},
	{name: ScrapeKey, means: "port:path,port:path: where the app's metrics are", check: of(ScrapeTargets)},
	{name: ImageKey, means: "the proxy's image: a name, or a full reference with a /", check: orNone(ImageName)},
	{name: ImageTypeKey, means: "debug, distroless or default", check: oneOf("debug", "distroless", "default")},
	{name: "sidecar.istio.io/proxyCPU", means: "CPU request", check: quantity},
	{name: "sidecar.istio.io/proxyMemory", means: "memory request", check: wholeBytes},
	{name: "sidecar.istio.io/proxyCPULimit", means: "CPU limit", check: quantity},
	{name: "sidecar.istio.io/proxyMemoryLimit", means: "memory limit", check: wholeBytes},
	{name: LogKey, means: "Envoy's log level", check: level},
	{name: ComponentLogKey, means: "log levels of Envoy's components", check: componentLevels},
	{name: AgentLogKey, means: "the agent's log level: debug, info, warn, error; with or without default: before it", check: agentLevel},
	{name: BootstrapKey, means: "ConfigMap with more of Envoy's bootstrap, in custom_bootstrap.json", check: orNone(ObjectName)},
	{name: VolumeKey, means: "JSON: volumes by name, or a list of them, for the proxy", check: of(UserVolumes)},
	{name: MountKey, means: "JSON: mounts by volume name, or a list of them, for the proxy", check: of(UserMounts)},
	{name: BindKey, means: "\"true\": the proxy may listen on ports below 1024", check: oneOf("true", "false"), lenient: true},
	{name: DiscoveryKey, means: "address of the control plane, host:port", check: Address},
	{name: "sidecar.istio.io/statsInclusionPrefixes", without: "statistics to keep are proxyStatsMatcher's of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/statsInclusionSuffixes", without: "statistics to keep are proxyStatsMatcher's of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/statsInclusionRegexps", without: "statistics to keep are proxyStatsMatcher's of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/statsHistogramBuckets", without: "histograms have Envoy's own buckets"},
	{name: "sidecar.istio.io/statsCompression", without: "metrics are not compressed by Envoy"},
	{name: "sidecar.istio.io/statsEvictionInterval", without: "statistics are not evicted"},
	{name: "sidecar.istio.io/extraStatTags", without: "tags of statistics are Envoy's own"},
	{name: "sidecar.istio.io/enableCoreDump", inNoMesh: true, without: "core dumps are the container runtime's"},
	{name: "sidecar.istio.io/controlPlaneAuthPolicy", inNoMesh: true, without: "it is controlPlaneAuthPolicy of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/native-side", inNoMesh: true, without: "the name is " + contract.NativeSidecar},
	{name: "sidecar.istio.io/holdApplicationUntilProxyStarts", inNoMesh: true, without: "it is holdApplicationUntilProxyStarts of " + contract.ProxyConfig},
	{name: "proxy.istio.io/holdApplicationUntilProxyStarts", inNoMesh: true, without: "it is holdApplicationUntilProxyStarts of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/terminationDrainDuration", inNoMesh: true, without: "it is terminationDrainDuration of " + contract.ProxyConfig},
	{name: "sidecar.istio.io/terminationGracePeriodSeconds", inNoMesh: true, without: "it is the pod's own spec.terminationGracePeriodSeconds"},
	{name: contract.IstioStatus, without: "it is Istio's mark of what it injected; ours is " + contract.Status},
	{name: TemplatesKey, means: "\"sidecar\"; no other template is there"},
	{name: "proxy.istio.io/overrides", without: "it is Istio's memory of a user's own containers; ours is " + contract.Overrides},
	{name: "prometheus.istio.io/secure-port", without: "metrics over mutual TLS are not served yet"},
	{name: contract.RevisionLabel, means: "the revision that injected"},
	{name: "istio.io/dataplane-mode", without: "it is a label, and " + noAmbient, same: "none"},
	{name: "networking.istio.io/tunnel", without: "the proxy takes no HBONE"},
	{name: "sidecar.istio.io/statsFlushInterval", without: "statistics are flushed as Envoy does by default"},
	{name: "sidecar.istio.io/statsHistogramBins", without: "histograms have Envoy's own buckets"},
	{name: "ambient.istio.io/bypass-inbound-capture", without: noAmbient},
	{name: "ambient.istio.io/dns-capture", without: noAmbient},
	{name: "ambient.istio.io/redirection", without: noAmbient, same: "disabled"},
	{name: "ambient.istio.io/waypoint-inbound-binding", without: noAmbient},
	{name: "istio.io/use-waypoint-canary-weight", without: noAmbient},
	{name: "alpha.istio.io/canonical-serviceaccounts", notPods: true, without: ofService},
	{name: "alpha.istio.io/kubernetes-serviceaccounts", notPods: true, without: ofService},
	{name: exportToKey, notPods: true, without: "it is an annotation of a Service, where it has its effect"},
	{name: "networking.istio.io/traffic-distribution", notPods: true, without: "it is an annotation of a Service, where it has its effect"},
	{name: "networking.istio.io/service-type", notPods: true, without: noGateways},
	{name: "traffic.istio.io/nodeSelector", notPods: true, without: noGateways},
	{name: "gateway.istio.io/controller-version", notPods: true, without: noGateways},
	{name: "gateway.istio.io/name-override", notPods: true, without: noGateways},
	{name: "gateway.istio.io/service-account", notPods: true, without: noGateways},
	{name: "kubernetes.io/ingress.class", notPods: true, without: noGateways},
	{name: "galley.istio.io/analyze-suppress", notPods: true, without: "it is for istioctl analyze; outrider lint has --skip"},
	{name: "istio.io/autoRegistrationGroup", notPods: true, without: ofWorkloadEntry},
	{name: "istio.io/workloadController", notPods: true, without: ofWorkloadEntry},
	{name: "istio.io/connectedAt", notPods: true, without: ofWorkloadEntry},
	{name: "istio.io/disconnectedAt", notPods: true, without: ofWorkloadEntry},
	{name: "istio.io/dry-run", notPods: true, without: "it is of an AuthorizationPolicy, not of a pod"},
	{name: "topology.istio.io/controlPlaneClusters", notPods: true, without: "it is of Istio's own namespace, for several clusters"},

	{name: contract.DependsOn, means: "which container waits for which"},
	{name: contract.Start, means: "gate, native, hold or off: how the start is ordered"},
	{name: contract.NativeRelease, means: "hook or probe: what releases the containers that wait for a native sidecar", check: oneOf("hook", "probe")},
	{name: contract.Capture, means: "none: no connection is captured", check: oneOf("all", "none")},
	{name: contract.Proxy, means: "none: no proxy; order, and parking alongside another mesh", check: oneOf("sidecar", "none")},
	{name: contract.Init, means: "who captures and brings the gates: auto, node, image-volume, container (an init container) or none (the proxy's own)", check: InitModes},
	{name: contract.NodeAnnotation, means: "written: what the node does for the pod", check: valid("no value of an author: injection writes it", func(string) bool { return false })},
	{name: contract.Park, means: "on, off or require: whether early connections wait", check: oneOf("on", "off", "require")},
	{name: contract.Prewarm, means: "hosts whose configuration is fetched before the first request"},
	{name: contract.Prefix + "push", without: "each proxy gets what it uses: remove it", same: "on-demand"},
	{name: contract.Status, means: "written: what was injected"},
	{name: contract.Overrides, means: "written: what of the pod was changed"},
}

const (
	exportToKey     = "networking.istio.io/exportTo"
	ofService       = "it belongs to a Service; the pods' service accounts decide"
	ofWorkloadEntry = "it is of a WorkloadEntry, which has no effect here; use a Host"
)

// families are the prefixes of annotation names that belong to injection. A name with such a prefix that is not
// in the table is a mistake.
var families = []string{contract.IstioAnnotation, contract.Prefix, contract.IstioTraffic, "status.sidecar.istio.io/", contract.IstioReadiness,
	"proxy.istio.io/", "inject.istio.io/", "prometheus.istio.io/", "networking.istio.io/", "ambient.istio.io/"}

var annotationIndex = func() map[string]*annotation {
	out := map[string]*annotation{}
	for i := range annotations {
		out[annotations[i].name] = &annotations[i]
	}
	return out
}()

// CheckAnnotations returns the annotations that have no effect. It returns an error if a value is invalid.
func CheckAnnotations(given map[string]string) ([]Ignored, error) {
	var out []Ignored
	for _, name := range slices.Sorted(maps.Keys(given)) {
		a, known := annotationIndex[name]
		switch {
		case !known && strings.HasPrefix(name, contract.DependsOn+"."):
		case !known && ofMesh(name):
			meant := ""
			if len(out) < maxMeant {
				meant = didYouMean(name, alike(name))
			}
			out = append(out, Ignored{name, "the name is not known" + meant, fmt.Sprintf("annotation %s is not known%s; it has no effect", name, meant)})
		case !known || a.same != "" && a.same == given[name]:
		case a.without != "":
			out = append(out, Ignored{name, a.without, fmt.Sprintf("annotation %s has no effect: %s", name, a.without)})
		case a.check != nil:
			if err := a.check(given[name]); err != nil && a.lenient {
				out = append(out, Ignored{name, fmt.Sprintf("%q is not %v", given[name], err), fmt.Sprintf("annotation %s: %q has no effect: want %v", name, given[name], err)})
			} else if err != nil {
				return out, fmt.Errorf("annotation %s: %q: want %w", name, given[name], err)
			}
		}
	}
	return out, nil
}

// maxMeant is the maximum number of unknown names of one pod that are compared with the known names, because a
// pod may have 10,000 unknown ones.
const maxMeant = 50

// InFamily reports whether an annotation name belongs to injection, ours or Istio's.
func InFamily(name string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) })
}

// ReadByNoMesh returns the reason why no mesh reads an annotation of that name; empty if a mesh reads it, or if
// that is unknown.
func ReadByNoMesh(name string) string {
	a, known := annotationIndex[name]
	switch {
	case known && a.inNoMesh:
		return a.without
	case !known && strings.HasPrefix(name, contract.Prefix) && !strings.HasPrefix(name, contract.DependsOn+"."):
		return "the name is not known" + didYouMean(name, alike(name))
	}
	return ""
}

// OfIstio reports whether Istio reads an annotation of that name, which has no effect here.
func OfIstio(name string) bool {
	a, known := annotationIndex[name]
	return known && a.without != "" && !a.inNoMesh && !strings.HasPrefix(name, contract.Prefix)
}

// OfPods reports whether an annotation of that name belongs to pods, or is probably a misspelling of one that does.
func OfPods(name string) bool {
	if a, known := annotationIndex[name]; known {
		return !a.notPods
	}
	return strings.HasPrefix(name, contract.DependsOn+".") || Meant(name) != ""
}

// Meant returns the annotation name of which the given name is probably a misspelling. It is empty if the name is
// known, is similar to none, or does not belong to injection.
func Meant(name string) string {
	if _, known := annotationIndex[name]; known || !InFamily(name) || strings.HasPrefix(name, contract.DependsOn+".") {
		return ""
	}
	return nearest(name, alike(name))
}

// alike returns the names of which an unknown name may be a misspelling: those with an effect, except for those
// that only injection writes.
func alike(name string) []string {
	var out []string
	for _, a := range annotations {
		if a.without == "" && a.name != contract.Status && a.name != contract.Overrides && a.name != contract.NodeAnnotation {
			out = append(out, a.name)
		}
	}
	if _, container, ok := strings.Cut(path.Base(name), "."); ok {
		out = append(out, contract.DependsOn+"."+container)
	}
	return out
}
