package inject

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/pod/podspec"
)

// Annotations that the code names. The table below has all.
const (
	proxyConfigKey   = "proxy.istio.io/config"
	nativeKey        = "sidecar.istio.io/nativeSidecar"
	modeKey          = "sidecar.istio.io/interceptionMode"
	statusPortKey    = "status.sidecar.istio.io/port"
	rewriteKey       = "sidecar.istio.io/rewriteAppHTTPProbers"
	mergeKey         = "prometheus.istio.io/merge-metrics"
	scrapeKey        = "prometheus.istio.io/scrape-targets"
	imageKey         = "sidecar.istio.io/proxyImage"
	imageTypeKey     = "sidecar.istio.io/proxyImageType"
	bootstrapKey     = "sidecar.istio.io/bootstrapOverride"
	volumeKey        = "sidecar.istio.io/userVolume"
	mountKey         = "sidecar.istio.io/userVolumeMount"
	bindKey          = "sidecar.istio.io/capNetBindService"
	discoveryKey     = "sidecar.istio.io/discoveryAddress"
	templatesKey     = "inject.istio.io/templates"
	logKey           = "sidecar.istio.io/logLevel"
	componentLogKey  = "sidecar.istio.io/componentLogLevel"
	agentLogKey      = "sidecar.istio.io/agentLogLevel"
	rerouteKey       = "istio.io/reroute-virtual-interfaces"
	kubevirtKey      = "traffic.sidecar.istio.io/kubevirtInterfaces"
	traffic          = "traffic.sidecar.istio.io/"
	readiness        = "readiness.status.sidecar.istio.io/"
	defaultContainer = "kubectl.kubernetes.io/default-container"
	defaultLogs      = "kubectl.kubernetes.io/default-logs-container"

	captureKey   = "outrider.dev/capture"
	proxyKey     = "outrider.dev/proxy"
	initKey      = "outrider.dev/init"
	releaseKey   = "outrider.dev/native-release"
	parkKey      = "outrider.dev/park"
	prewarmKey   = "outrider.dev/prewarm"
	pushKey      = "outrider.dev/push"
	statusKey    = "outrider.dev/status"
	overridesKey = "outrider.dev/overrides"
)

// An annotation is one that a pod can have.
type annotation struct {
	name    string
	means   string
	without string // why it has no effect; empty for one that has
	nobodys bool   // nor in any other mesh
	check   func(string) error
	soft    func(string) error // likewise, where Istio takes any value, and a bad one for none
}

// annotations are all that are known, those that injection reads and those that others
// do. A bad value of one with a check refuses the pod, as Istio's validate.go does.
var annotations = []annotation{
	{name: injectLabel, means: "\"true\" or \"false\": whether to inject; as a label it goes first"},
	{name: ownInjectLabel, means: "as " + injectLabel},
	{name: proxyConfigKey, means: "a ProxyConfig for this pod; the agent reads it too"}, // checked by settings
	{name: nativeKey, means: "whether the proxy is a restartable init container"},
	{name: modeKey, means: "how connections come to the proxy", check: oneOf("REDIRECT", "TPROXY", "NONE")},
	{name: traffic + "includeInboundPorts", means: "inbound ports to capture, or *", check: portsOrAll},
	{name: traffic + "excludeInboundPorts", means: "inbound ports not to capture", check: ports},
	{name: traffic + "includeOutboundIPRanges", means: "address ranges to capture, or *", check: rangesOrAll},
	{name: traffic + "excludeOutboundIPRanges", means: "address ranges not to capture", check: ranges},
	{name: traffic + "includeOutboundPorts", means: "outbound ports to capture whatever the address", check: portsOrAll},
	{name: traffic + "excludeOutboundPorts", means: "outbound ports not to capture", check: ports},
	{name: traffic + "excludeInterfaces", means: "interfaces on which nothing is captured", check: interfaces},
	{name: rerouteKey, means: "interfaces whose inbound traffic is a guest's outbound traffic", check: interfaces},
	{name: kubevirtKey, means: "the older name of " + rerouteKey, check: interfaces},
	{name: statusPortKey, means: "port of the agent; 0: no probes of the proxy", check: portOrZero},
	{name: readiness + "initialDelaySeconds", means: "of the proxy's readiness probe", check: number},
	{name: readiness + "periodSeconds", means: "of the proxy's readiness probe", check: number},
	{name: readiness + "failureThreshold", means: "of the proxy's readiness probe", check: number},
	{name: readiness + "applicationPorts", nobodys: true, without: "readiness of the proxy does not depend on the application"},
	{name: rewriteKey, means: "whether the agent makes the app's HTTP, TCP and gRPC probes"},
	{name: mergeKey, means: "whether the agent serves the app's metrics with its own", check: boolean},
	{name: scrapeKey, means: "port:path,port:path: where the app's metrics are", check: of(scrapeTargets)},
	{name: imageKey, means: "the proxy's image: a name, or a full reference with a /", check: orNone(imageName)},
	{name: imageTypeKey, means: "debug, distroless or default", check: oneOf("debug", "distroless", "default")},
	{name: "sidecar.istio.io/proxyCPU", means: "CPU request", check: quantity},
	{name: "sidecar.istio.io/proxyMemory", means: "memory request", check: quantity},
	{name: "sidecar.istio.io/proxyCPULimit", means: "CPU limit", check: quantity},
	{name: "sidecar.istio.io/proxyMemoryLimit", means: "memory limit", check: quantity},
	{name: logKey, means: "Envoy's log level", check: level},
	{name: componentLogKey, means: "log levels of Envoy's components", check: componentLevels},
	{name: agentLogKey, means: "the agent's log level: debug, info, warn, error; with or without default: before it", check: agentLevel},
	{name: bootstrapKey, means: "ConfigMap with more of Envoy's bootstrap, in custom_bootstrap.json", check: orNone(objectName)},
	{name: volumeKey, means: "JSON: volumes by name, for the proxy", check: of(userVolumes)},
	{name: mountKey, means: "JSON: mounts by volume name, for the proxy", check: of(userMounts)},
	{name: bindKey, means: "\"true\": the proxy may listen on ports below 1024", soft: oneOf("true", "false")},
	{name: discoveryKey, means: "address of the control plane, host:port", check: address},
	{name: "sidecar.istio.io/statsInclusionPrefixes", without: "statistics to keep are proxyStatsMatcher's of " + proxyConfigKey},
	{name: "sidecar.istio.io/statsInclusionSuffixes", without: "statistics to keep are proxyStatsMatcher's of " + proxyConfigKey},
	{name: "sidecar.istio.io/statsInclusionRegexps", without: "statistics to keep are proxyStatsMatcher's of " + proxyConfigKey},
	{name: "sidecar.istio.io/statsHistogramBuckets", without: "histograms have Envoy's own buckets"},
	{name: "sidecar.istio.io/statsCompression", without: "metrics are not compressed by Envoy"},
	{name: "sidecar.istio.io/statsEvictionInterval", without: "statistics are not evicted"},
	{name: "sidecar.istio.io/extraStatTags", without: "tags of statistics are Envoy's own"},
	{name: "sidecar.istio.io/enableCoreDump", nobodys: true, without: "core dumps are the container runtime's"},
	{name: "sidecar.istio.io/controlPlaneAuthPolicy", nobodys: true, without: "it is controlPlaneAuthPolicy of " + proxyConfigKey},
	{name: "sidecar.istio.io/native-side", nobodys: true, without: "the name is " + nativeKey},
	{name: "sidecar.istio.io/holdApplicationUntilProxyStarts", nobodys: true, without: "it is holdApplicationUntilProxyStarts of " + proxyConfigKey},
	{name: "proxy.istio.io/holdApplicationUntilProxyStarts", nobodys: true, without: "it is holdApplicationUntilProxyStarts of " + proxyConfigKey},
	{name: "sidecar.istio.io/terminationDrainDuration", nobodys: true, without: "it is terminationDrainDuration of " + proxyConfigKey},
	{name: "sidecar.istio.io/terminationGracePeriodSeconds", nobodys: true, without: "it is the pod's own spec.terminationGracePeriodSeconds"},
	{name: istioStatus, without: "it is Istio's mark of what it injected; ours is " + statusKey},
	{name: templatesKey, means: "\"sidecar\"; no other template is there"},
	{name: "proxy.istio.io/overrides", without: "it is Istio's memory of a user's own containers; ours is " + overridesKey},
	{name: "prometheus.istio.io/secure-port", without: "metrics over mutual TLS are not served yet"},
	{name: revisionLabel, means: "the revision that injected"},
	{name: "istio.io/dataplane-mode", without: "it is a label, and there is no ambient mode here"},
	{name: "networking.istio.io/tunnel", without: "the proxy takes no HBONE"},

	{name: podspec.EdgesAnnotation, means: "who waits for whom"},
	{name: podspec.StartAnnotation, means: "gate, native, hold or off: how the start is ordered"},
	{name: releaseKey, means: "hook or probe: what releases those who wait for a native sidecar", check: oneOf("hook", "probe")},
	{name: captureKey, means: "none: no connection is captured", check: oneOf("all", "none")},
	{name: proxyKey, means: "none: no proxy; order, and parking beside another mesh", check: oneOf("sidecar", "none")},
	{name: initKey, means: "none: no init container of ours", check: oneOf("container", "none")},
	{name: parkKey, means: "on, off or require: whether early connections wait", check: oneOf("on", "off", "require")},
	{name: prewarmKey, means: "hosts whose configuration is fetched before the first request"},
	{name: pushKey, means: "full or on-demand: how much of the mesh the proxy is told", check: oneOf("full", "on-demand")},
	{name: statusKey, means: "written: what was injected"},
	{name: overridesKey, means: "written: what of the pod was changed"},
}

const ownFamily = "outrider.dev/"

// families are the prefixes of names in which a name that no table knows is a mistake.
var families = []string{"sidecar.istio.io/", ownFamily, "traffic.sidecar.istio.io/", "status.sidecar.istio.io/",
	"readiness.status.sidecar.istio.io/", "proxy.istio.io/", "inject.istio.io/", "prometheus.istio.io/", "networking.istio.io/", "ambient.istio.io/"}

var annotationIndex = func() map[string]*annotation {
	out := map[string]*annotation{}
	for i := range annotations {
		out[annotations[i].name] = &annotations[i]
	}
	return out
}()

// checkAnnotations says which have no effect, and refuses what cannot be used.
func (in *injection) checkAnnotations() error {
	given := in.ours()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		a, known := annotationIndex[name]
		switch {
		case !known && strings.HasPrefix(name, podspec.EdgesAnnotation+"."):
		case !known && strings.HasPrefix(name, "ambient.istio.io/"):
			in.idle(name, "there is no ambient mode here")
			in.warn("annotation %s has no effect: there is no ambient mode here", name)
		case !known && InFamily(name):
			in.idle(name, "the name is not known"+didYouMean(name, annotationNames()))
			in.warn("annotation %s is not known%s; it has no effect", name, didYouMean(name, annotationNames()))
		case !known:
		case a.without != "":
			in.idle(name, a.without)
			in.warn("annotation %s has no effect: %s", name, a.without)
		case a.soft != nil && a.soft(given[name]) != nil:
			in.idle(name, fmt.Sprintf("%q is not %v", given[name], a.soft(given[name])))
			in.warn("annotation %s: %q has no effect: want %v", name, given[name], a.soft(given[name]))
		case a.check != nil:
			if err := a.check(given[name]); err != nil {
				return refuse(BadAnnotation, "", "annotation %s: %q: want %v", name, given[name], err)
			}
		}
	}
	return nil
}

// InFamily says whether an annotation of that name is about injection, ours or Istio's.
func InFamily(name string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) })
}

// Nobodys says why no mesh reads an annotation of that name; empty if one does, or if that
// is not known.
func Nobodys(name string) string {
	if a, known := annotationIndex[name]; known && a.nobodys {
		return a.without
	}
	return ""
}

func annotationNames() []string {
	var out []string
	for _, a := range annotations {
		out = append(out, a.name)
	}
	return out
}

// The errors of these say what would be right.

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return errors.New(strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
	}
}

func number(s string) error {
	if n, err := strconv.ParseInt(s, 10, 32); err != nil || n < 0 {
		return errors.New("a whole number that is not negative")
	}
	return nil
}

func portOrZero(s string) error {
	if _, err := strconv.ParseUint(s, 10, 16); err != nil {
		return errors.New("a port, or 0")
	}
	return nil
}

func boolean(s string) error {
	if _, err := strconv.ParseBool(s); err != nil {
		return errors.New("true or false")
	}
	return nil
}

func quantity(s string) error {
	if q, err := resource.ParseQuantity(s); err != nil || q.Sign() < 0 {
		return errors.New("an amount, for example 100m or 128Mi")
	}
	return nil
}

func items(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func ports(s string) error {
	for _, item := range items(s) {
		if n, err := strconv.ParseUint(item, 10, 16); err != nil || n == 0 {
			return errors.New("ports from 1 to 65535, with commas between")
		}
	}
	return nil
}

func portsOrAll(s string) error {
	if s == "*" || ports(s) == nil {
		return nil
	}
	return errors.New("*, or ports from 1 to 65535 with commas between")
}

func ranges(s string) error {
	for _, item := range items(s) {
		_, err := netip.ParsePrefix(item)
		if _, bare := netip.ParseAddr(item); err != nil && bare != nil {
			return errors.New("address ranges like 10.0.0.0/8, with commas between")
		}
	}
	return nil
}

func rangesOrAll(s string) error {
	if s == "*" || ranges(s) == nil {
		return nil
	}
	return errors.New("*, or address ranges like 10.0.0.0/8 with commas between")
}

func interfaces(s string) error {
	for _, item := range items(s) {
		if len(item) > 15 || strings.ContainsAny(item, " /:+*") {
			return errors.New("names of network interfaces, with commas between")
		}
	}
	return nil
}

// orNone takes an empty value too, as if it was not there.
func orNone(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// of checks what parse can read.
func of[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}
