package remedies

import (
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// A Purpose says how a remedy must change a proxy and an application.
type Purpose int

// The purposes.
const (
	Start    Purpose = iota // the application waits for the proxy
	JobStart                // the same in a pod that should end
	Stronger                // the application waits for the proxy, which a hold did not achieve
	Init                    // an init container has a network before the proxy runs
	Stop                    // the proxy ends after the application
	End                     // the proxy ends with the pod's work
)

// native are the purposes that a native sidecar serves, where the mesh's own wait at the start does not.
var native = []Purpose{JobStart, Stronger, Init, Stop, End}

// A way is a row of the table of remedies.
type way struct {
	proxy    string // container, or mesh
	purposes []Purpose
	since    since // the versions of the mesh that have it

	// In these texts {app}, {proxy}, {port}, {grace} and {release} are replaced: the application, the proxy, the port
	// of the failed call, the seconds that are left of the pod's grace period, and the mesh's version. A way whose text
	// has no replacement is passed over.
	words      string // what to do
	annotation string // empty: the words say where
	value      string
	config     string // the field of the annotation proxy.istio.io/config that gets the value
	list       bool   // the value is added to the one that the pod has
	also       string // what else is to do
	older      string // said with the way that is taken instead by an older version

	by startup.Mechanism // of the order at the start; empty: none
}

const (
	waits    = "let {app} wait for {proxy}"
	leaveOut = "leave port {port} out of the capture of the whole pod, since {app} runs before {proxy} can"
	tryAgain = "let {app} try again until its calls succeed"
	moveInit = "let {app} do without the network, or do its work in a pod without the mesh: it runs before {proxy} can"
	longer   = "let {proxy} serve {grace} s longer when the pod is deleted, as long as {app} may need"

	istioNative   = "this is Istio {release}: from 1.24 on, the annotation " + contract.NativeSidecar + " makes istio-proxy a native sidecar, from 1.19 on, ENABLE_NATIVE_SIDECARS=true of istiod does it for all pods (both with Kubernetes 1.29)"
	linkerdNative = "this is Linkerd {release}: from 2.15 on, the annotation config.alpha.linkerd.io/proxy-enable-native-sidecar makes linkerd-proxy a native sidecar (Kubernetes 1.29)"
	kumaNative    = "from Kuma 2.7 on, KUMA_EXPERIMENTAL_SIDECAR_CONTAINERS=true of the control plane makes kuma-sidecar a native sidecar in all pods (Kubernetes 1.29)"
)

// nativeWords says for each purpose what a native sidecar does.
var nativeWords = map[Purpose]string{
	JobStart: "which starts before {app} and ends with the pod's work", Stronger: "without which {app} does not start",
	Init: "which starts before {app}", Stop: "which the kubelet stops after {app}", End: "which ends with the pod's work",
}

// ways lists the remedies; the first that fits counts. Sources:
//
//   - Istio: istio.io/docs/reference/config/annotations; change notes of 1.24.0 (the annotation nativeSidecar); upgrade notes of 1.27 (native
//     sidecars are the default); releasenotes/notes/27696.yaml (the hold of one pod)
//   - Linkerd: CHANGES.md, edge-23.11.4 (native sidecars), edge-21.4.4 (proxy-await), edge-19.12.3 (wait-before-exit-seconds); the
//     announcement of 2.19 (config.beta)
//   - Kuma: CHANGELOG.md, 2.4.0 (#7583), 2.7.0 (#9321), 2.14.0 (#16502); pkg/plugins/runtime/k8s/metadata/annotations.go
//   - Dapr: docs.dapr.io 1.13, arguments-annotations-overview; dapr/dapr#7268
//   - Consul: hashicorp/consul-k8s#3919, #4678; App Mesh: aws-app-mesh-controller-for-k8s, wait-until-proxy-ready
var ways = []way{
	{proxy: podspec.OurProxy, purposes: []Purpose{Start, JobStart, Stronger}, words: waits, annotation: contract.Start, value: "gate", by: startup.Gate},
	{proxy: podspec.OurProxy, purposes: []Purpose{Init}, words: "let {proxy} start before {app}", annotation: contract.DependsOn + ".{app}", value: podspec.OurProxy, by: startup.Native},
	{proxy: podspec.OurProxy, purposes: []Purpose{Stop, End}, words: "make {proxy} a native sidecar", annotation: contract.NativeSidecar, value: "true", by: startup.Native},

	{
		proxy: "istio-proxy", purposes: native, since: since{release: [3]int{1, 24}}, annotation: contract.NativeSidecar, value: "true",
		older: istioNative, by: startup.Native,
	},
	{
		proxy: "istio-proxy", purposes: []Purpose{Start}, since: since{release: [3]int{1, 9}}, words: waits, config: "holdApplicationUntilProxyStarts", value: "true",
		older: "this is Istio {release}: from 1.9 on, holdApplicationUntilProxyStarts in the annotation " + contract.ProxyConfig + " lets {app} wait", by: startup.Hold,
	},
	{
		proxy: "istio-proxy", purposes: []Purpose{JobStart}, since: since{release: [3]int{1, 9}}, words: waits, config: "holdApplicationUntilProxyStarts", value: "true",
		also: "let {app} end istio-proxy when its work is done (POST http://127.0.0.1:15020/quitquitquit), or the pod does not end", by: startup.Hold,
	},
	{proxy: "istio-proxy", purposes: []Purpose{Init}, words: leaveOut, annotation: "traffic.sidecar.istio.io/excludeOutboundPorts", value: "{port}", list: true},
	{proxy: "istio-proxy", purposes: []Purpose{Init}, words: "give {app} runAsUser: 1337, whose calls are not captured: it runs before {proxy} can"},
	{proxy: "istio-proxy", purposes: []Purpose{Stop}, since: since{release: [3]int{1, 9}}, words: longer, config: "terminationDrainDuration", value: `"{grace}s"`},
	{proxy: "istio-proxy", purposes: []Purpose{End}, words: "let {app} end {proxy} when its work is done (POST http://127.0.0.1:15020/quitquitquit)"},

	{
		proxy: "linkerd-proxy", purposes: native, since: since{[3]int{2, 19}, [3]int{25, 10, 2}},
		annotation: "config.beta.linkerd.io/proxy-enable-native-sidecar", value: "true", by: startup.Native,
	},
	{
		proxy: "linkerd-proxy", purposes: native, since: since{[3]int{2, 15}, [3]int{23, 11, 4}},
		annotation: "config.alpha.linkerd.io/proxy-enable-native-sidecar", value: "true", older: linkerdNative, by: startup.Native,
	},
	{
		proxy: "linkerd-proxy", purposes: []Purpose{Start}, since: since{[3]int{2, 11}, [3]int{21, 4, 4}}, words: waits,
		annotation: "config.linkerd.io/proxy-await", value: "enabled", by: startup.Hold,
	},
	{
		proxy: "linkerd-proxy", purposes: []Purpose{JobStart}, since: since{[3]int{2, 11}, [3]int{21, 4, 4}}, words: waits,
		annotation: "config.linkerd.io/proxy-await", value: "enabled", also: "start {app} by linkerd-await --shutdown, or the pod does not end", by: startup.Hold,
	},
	{proxy: "linkerd-proxy", purposes: []Purpose{Init}, words: leaveOut, annotation: "config.linkerd.io/skip-outbound-ports", value: "{port}", list: true},
	{
		proxy: "linkerd-proxy", purposes: []Purpose{Stop}, since: since{[3]int{2, 7}, [3]int{19, 12, 3}}, words: longer,
		annotation: "config.alpha.linkerd.io/proxy-wait-before-exit-seconds", value: "{grace}",
	},
	{proxy: "linkerd-proxy", purposes: []Purpose{End}, words: "start {app} by linkerd-await --shutdown, which ends {proxy} after it"},

	{
		proxy: "kuma-sidecar", purposes: []Purpose{Start, JobStart}, since: since{release: [3]int{2, 4}}, words: waits,
		annotation: "kuma.io/wait-for-dataplane-ready", value: "true", older: "this is Kuma {release}: from 2.4 on, the annotation kuma.io/wait-for-dataplane-ready lets {app} wait", by: startup.Hold,
	},
	{proxy: "kuma-sidecar", purposes: []Purpose{Init}, words: leaveOut, annotation: "traffic.kuma.io/exclude-outbound-ports", value: "{port}", list: true, also: kumaNative},
	{
		proxy: "kuma-sidecar", purposes: []Purpose{Stop}, since: since{release: [3]int{2, 0}}, words: longer,
		annotation: "kuma.io/sidecar-drain-time", value: "{grace}s", also: kumaNative,
	},
	{proxy: "kuma-sidecar", purposes: []Purpose{End}, words: "let {app} end {proxy} when its work is done (POST http://127.0.0.1:9901/quitquitquit)", also: kumaNative},
	{proxy: "kuma-sidecar", purposes: []Purpose{Stronger}, words: tryAgain, also: kumaNative},

	{proxy: "daprd", purposes: []Purpose{Start, JobStart, Stronger}, words: "let {app} wait until GET /v1.0/healthz/outbound at Dapr's HTTP port (3500) answers with 204: Dapr has no annotation for it"},
	{
		proxy: "daprd", purposes: []Purpose{Stop}, since: since{release: [3]int{1, 13}}, words: "let {proxy} serve until {app} is done, {grace} s at most",
		annotation: "dapr.io/block-shutdown-duration", value: "{grace}s", older: "this is Dapr {release}: from 1.13 on, the annotation dapr.io/block-shutdown-duration lets daprd serve longer",
	},
	{proxy: "daprd", purposes: []Purpose{Stop}, words: "let {app} make its last calls before it ends, right after SIGTERM"},
	{proxy: "daprd", purposes: []Purpose{End}, words: "let {app} end {proxy} when its work is done (POST /v1.0/shutdown at Dapr's HTTP port, 3500)"},

	{
		proxy: "consul-dataplane", purposes: []Purpose{Start, JobStart, Stronger}, words: "let {app} try again until {proxy} accepts connections (port 20000)",
		also: "newer versions of consul-k8s have the annotation consul.hashicorp.com/enable-consul-dataplane-as-sidecar",
	},
	{proxy: "consul-dataplane", purposes: []Purpose{Stop}, words: "let {proxy} serve longer when the pod is deleted (the annotations consul.hashicorp.com/enable-sidecar-proxy-lifecycle and consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds, from consul-k8s 1.2 on)"},
	{proxy: "consul-dataplane", purposes: []Purpose{End}, words: "let {app} end {proxy} when its work is done (POST /graceful_shutdown, with the annotation consul.hashicorp.com/enable-sidecar-proxy-lifecycle)"},

	{proxy: "App Mesh", purposes: []Purpose{Start, JobStart}, words: "set sidecar.waitUntilProxyReady=true of App Mesh's controller (a value of its chart), and create the pod anew: {app} then waits for {proxy}"},
	{proxy: "OSM", purposes: []Purpose{Start, JobStart, Stronger}, words: tryAgain + ": OSM has nothing that lets it wait"},
}

// otherwise says what helps if the mesh that injects a proxy has nothing: its manifest does not have the proxy, so only
// the application can do something.
var otherwise = map[Purpose]string{
	Start: tryAgain, JobStart: tryAgain, Stronger: tryAgain, Init: moveInit,
	Stop: "let {app} make its last calls right after SIGTERM, while {proxy} still serves",
	End:  "let {app} tell {proxy} to exit when its work is done",
}

// byHand says what helps for a container that the workload's own manifest describes.
var byHand = map[Purpose]string{
	Start:    sidecar + " and a startup probe), so that {app} starts after it",
	JobStart: sidecar + " and a startup probe), so that {app} starts after it",
	Stronger: sidecar + " and a startup probe), so that {app} starts after it",
	Init:     sidecar + " and a startup probe), listed before {app}",
	Stop:     sidecar + "), which the kubelet stops after {app}",
	End:      sidecar + "), which ends with the pod's work",
}

// already says what helps for a proxy that is a native sidecar.
var already = map[Purpose]string{
	Start:    "give {proxy}, which is a native sidecar, a startup probe, for which {app} waits",
	JobStart: "give {proxy}, which is a native sidecar, a startup probe, for which {app} waits",
	Stronger: "give {proxy}, which is a native sidecar, a startup probe, for which {app} waits",
	Init:     "list {proxy}, which is a native sidecar, before {app}, with a startup probe",
	Stop:     "give the pod a longer terminationGracePeriodSeconds: {proxy} is a native sidecar, which the kubelet stops before {app} has ended only when that time is over",
	End:      "see why {proxy} does not end: it is a native sidecar, which the kubelet stops when the pod's work is done",
}

const sidecar = "make {proxy} a native sidecar (an init container with restartPolicy: Always"
