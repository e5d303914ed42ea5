package validation

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	security "k8s.io/pod-security-admission/api"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/startup"
)

type annotations = map[string]string

// A setting is a case of the tests: the settings for injection by a pod's author and by the mesh.
type setting struct {
	name        string
	annotations annotations
	change      func(*corev1.Pod) // change that the author makes in the pod; nil: none
	values      string
	kubernetes  startup.Kubernetes
	bundle      string         // name of the ClusterTrustBundle with the roots
	enforce     security.Level // Pod Security level that the namespace enforces
	keeps       bool           // injection must not change the pod's Pod Security level
	commands    bool           // injection gets the commands of the images
	all         bool           // injection must not refuse any pod
}

var cases = []setting{
	{name: "defaults", all: true},
	{name: "start: gate", annotations: annotations{"outrider.dev/start": "gate"}},
	{name: "start: gate, with the commands of images", annotations: annotations{"outrider.dev/start": "gate"}, commands: true},
	{name: "start: native", annotations: annotations{"outrider.dev/start": "native"}},
	{name: "start: native on 1.29", annotations: annotations{"outrider.dev/start": "native"}, kubernetes: 29},
	{name: "start: native on 1.33", annotations: annotations{"outrider.dev/start": "native"}, kubernetes: 33},
	{name: "start: native on 1.36", annotations: annotations{"outrider.dev/start": "native"}, kubernetes: 36},
	{name: "start: native, released by a probe", annotations: annotations{"outrider.dev/start": "native", "outrider.dev/native-release": "probe"}},
	{name: "start: hold", annotations: annotations{"outrider.dev/start": "hold"}},
	{name: "start: off", annotations: annotations{"outrider.dev/start": "off"}},
	{name: "defaults on 1.28", kubernetes: 28},
	{name: "defaults on 1.36", kubernetes: 36},
	{name: "nativeSidecar: true", annotations: annotations{"sidecar.istio.io/nativeSidecar": "true"}},
	{name: "nativeSidecar: false", annotations: annotations{"sidecar.istio.io/nativeSidecar": "false"}},
	{name: "TPROXY", annotations: annotations{"sidecar.istio.io/interceptionMode": "TPROXY"}},
	{name: "no interception", annotations: annotations{"sidecar.istio.io/interceptionMode": "NONE"}, keeps: true},
	{name: "park: off", annotations: annotations{"outrider.dev/park": "off"}},
	{name: "park: require", annotations: annotations{"outrider.dev/park": "require"}},
	{name: "capture: none", annotations: annotations{"outrider.dev/capture": "none"}, keeps: true},
	{name: "proxy: none", annotations: annotations{"outrider.dev/proxy": "none"}},
	{name: "init: none", annotations: annotations{"outrider.dev/init": "none"}},
	{name: "init: none, gates, TPROXY", annotations: annotations{"outrider.dev/init": "none", "outrider.dev/start": "gate", "sidecar.istio.io/interceptionMode": "TPROXY"}},
	{name: "status port 0", annotations: annotations{"status.sidecar.istio.io/port": "0"}},
	{name: "low ports", annotations: annotations{"sidecar.istio.io/capNetBindService": "true"}},
	{name: "annotations of the proxy", annotations: annotations{"sidecar.istio.io/proxyCPU": "10m", "sidecar.istio.io/proxyMemoryLimit": "300Mi", "sidecar.istio.io/logLevel": "debug",
		"sidecar.istio.io/bootstrapOverride": "more", "sidecar.istio.io/userVolume": `{"extra": {"emptyDir": {}}}`, "sidecar.istio.io/userVolumeMount": `{"extra": {"mountPath": "/extra"}}`,
		"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "readiness.status.sidecar.istio.io/initialDelaySeconds": "3"}},
	{name: "roots of a ClusterTrustBundle", bundle: contract.TrustSigner},
	{name: "DNS is captured", values: `meshConfig: {defaultConfig: {proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true", ISTIO_META_CLUSTER_ID: west}}}`},
	{name: "Istio's hold", values: "global: {proxy: {holdApplicationUntilProxyStarts: true}}"},
	{name: "no limits", values: "global: {proxy: {resources: {limits: {cpu: null, memory: null}}}}"},
	{name: "resources: null", values: "global: {proxy: {resources: null}}"},
	{name: "partial resources", values: "global: {proxy: {resources: {requests: {cpu: 10m}, limits: {memory: 256Mi}}}}"},
	{name: "other resources", values: "global: {proxy: {resources: {limits: {ephemeral-storage: 1Gi}}}}"},
	{name: "many values", values: `global: {hub: registry.example/mesh, tag: 1.2, imagePullPolicy: Always, imagePullSecrets: [regcred, other], network: n1, meshID: m1, nativeNftables: true,
  multiCluster: {clusterName: west}, proxy: {statusPort: 15555, clusterDomain: c.example, excludeInboundPorts: 80, readinessPeriodSeconds: 20, readinessFailureThreshold: 2,
  startupProbe: {failureThreshold: 30}, lifecycle: {preStop: {exec: {command: [sleep, "3"]}}}, seccompProfile: {type: Localhost, localhostProfile: p.json}}}
sidecarInjectorWebhook: {rewriteAppHTTPProbe: false, injectedAnnotations: {team: mesh}}`},
	{name: "Pod Security baseline", enforce: security.LevelBaseline},
	{name: "Pod Security baseline, capture: none", enforce: security.LevelBaseline, annotations: annotations{"outrider.dev/capture": "none", "sidecar.istio.io/capNetBindService": "true"}},
	{name: "Pod Security restricted, capture: none", enforce: security.LevelRestricted, annotations: annotations{"outrider.dev/capture": "none"}},
	{name: "Pod Security restricted, gates, capture: none", enforce: security.LevelRestricted, annotations: annotations{"outrider.dev/capture": "none", "outrider.dev/start": "gate"}, commands: true},
	{name: "Pod Security baseline, a volume of the node", enforce: security.LevelBaseline, annotations: annotations{"outrider.dev/capture": "none", "sidecar.istio.io/userVolume": `{"extra": {"hostPath": {"path": "/x"}}}`}},
	{name: "Pod Security restricted, a volume of a network", enforce: security.LevelRestricted, annotations: annotations{"outrider.dev/capture": "none", "sidecar.istio.io/userVolume": `{"extra": {"nfs": {"server": "s", "path": "/x"}}}`}},
	{name: "Pod Security baseline, Unconfined", enforce: security.LevelBaseline, annotations: annotations{"outrider.dev/capture": "none"}, values: "global: {proxy: {seccompProfile: {type: Unconfined}}}"},
	{name: "Pod Security baseline, another mesh's proxy", enforce: security.LevelBaseline, change: func(pod *corev1.Pod) { otherMesh(pod); pod.Spec.InitContainers = nil }, annotations: annotations{"outrider.dev/proxy": "none"}},
	{name: "pod-level resources", change: podLevel(nil)},
	{name: "pod-level resources without room", change: podLevel(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")})},
	{name: "own proxy container", change: ownProxy},
	{name: "own proxy container, gates", change: ownProxy, annotations: annotations{"outrider.dev/start": "gate"}},
	{name: "another mesh's proxy", change: otherMesh, annotations: annotations{"outrider.dev/proxy": "none"}},
	{name: "another mesh's proxy, gates", change: otherMesh, annotations: annotations{"outrider.dev/inject": "true", "outrider.dev/start": "gate", "outrider.dev/park": "require"}},
}

// podLevel returns a change that sets the pod's spec.resources to the sum of its containers' resources and of the
// given resources.
func podLevel(more corev1.ResourceList) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		all := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			var request, limit resource.Quantity
			for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for _, c := range list {
					request.Add(c.Resources.Requests[name])
					limit.Add(c.Resources.Limits[name])
				}
			}
			request.Add(more[name])
			limit.Add(request)
			if !request.IsZero() {
				all.Requests[name] = request
			}
			if !limit.IsZero() {
				all.Limits[name] = limit
			}
		}
		pod.Spec.Resources = &all
	}
}

// ownProxy adds a proxy container with fields of the author. Injection completes the container.
func ownProxy(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "outrider-proxy", Image: "auto",
		Env:             []corev1.EnvVar{{Name: "A", Value: "b"}},
		Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}, Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
		Ports:           []corev1.ContainerPort{{ContainerPort: 15090}, {ContainerPort: 18443, Name: "more"}},
		SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(1000)), RunAsNonRoot: new(true)},
		Lifecycle:       &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}},
	})
}

// otherMesh adds an abridged form of the containers that Istio injects.
func otherMesh(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "istio-init", Image: "istio/proxyv2:1.27", Args: []string{"istio-iptables"},
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}})
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "istio/proxyv2:1.27", Args: []string{"proxy", "sidecar"},
		Ports:          []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(15021)}}}})
}

// namespace returns a namespace in which pods are injected, with the Pod Security level of the setting.
func (s setting) namespace() inject.Namespace {
	labels := map[string]string{"istio-injection": "enabled"}
	if s.enforce != "" {
		labels[security.EnforceLevelLabel] = string(s.enforce)
	}
	return inject.Namespace{Name: namespace, Labels: labels}
}

func (s setting) options(t testing.TB) inject.Options {
	t.Helper()
	v, _, err := settings.ParseValues([]byte(s.values))
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return inject.Options{Kubernetes: s.kubernetes, TrustSigner: s.bundle, Values: v, ProbeKey: inject.DerivedProbeKey([]byte("secret"))}
}

// written returns a pod as its author would write it with the setting.
func (s setting) written(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	if pod.Annotations == nil {
		pod.Annotations = annotations{}
	}
	maps.Copy(pod.Annotations, s.annotations)
	if s.change != nil {
		s.change(pod)
	}
	return pod
}
