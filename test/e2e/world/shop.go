package world

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
)

// Awesome returns the pod of most cases: an application that fetches its configuration at its start, exits if
// that fails, and then keeps calling a server of the mesh.
func Awesome(namespace, name string) *corev1.Pod {
	grace := int64(15)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{
			// Fifty pods must fit on one node.
			"sidecar.istio.io/proxyCPU": "10m", "sidecar.istio.io/proxyMemory": "32Mi",
		}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: AppImage,
				Command:        []string{"/app", "serve", "--config=http://config.centre/", "--call=http://server.shop/", "--stop=300ms"},
				Ports:          []corev1.ContainerPort{{ContainerPort: 8080}},
				ReadinessProbe: HTTPProbe("/ready", 8080),
			}},
		},
	}
}

// ListProxy adds an incomplete proxy container after the application. Injection completes the proxy container.
func ListProxy(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: contract.ProxyContainer, Image: "auto"})
}

// HTTPProbe probes once a second. The timeout is long because the node is busy.
func HTTPProbe(path string, port int) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}}}
}

const injection = "istio-injection"

var meshed = []string{"shop", "strict", TierNamespace}

// Return restores what "outrider uninject" and "outrider uninstall --purge" removed: labels, proxies, policies.
func (w *World) Return(ctx context.Context) error {
	_, err := w.Kubectl(ctx, "", slices.Concat([]string{"label", "--overwrite", "namespaces"}, meshed, []string{injection + "=enabled"})...)
	if err != nil {
		return err
	}
	if err := w.Apply(ctx, services); err != nil {
		return err
	}
	for _, namespace := range []string{"shop", TierNamespace} { // the namespaces with Deployments whose pods are injected
		if _, err := w.Kubectl(ctx, "", "rollout", "restart", "deployment", "--namespace="+namespace); err != nil {
			return err
		}
	}
	return w.RolledOut(ctx)
}

// Furnish creates the namespaces and the services that the pods call.
func (w *World) Furnish(ctx context.Context) error {
	for _, name := range meshed {
		if err := w.Namespace(ctx, name, map[string]string{injection: "enabled"}); err != nil {
			return err
		}
	}
	for _, name := range []string{"plain", "centre"} { // plain is for pods that the command injects, centre for pods without a mesh
		if err := w.Namespace(ctx, name, nil); err != nil {
			return err
		}
	}
	if err := w.Apply(ctx, services); err != nil {
		return err
	}
	for _, of := range []string{"deployment/config --namespace=centre", "deployment/server --namespace=shop"} {
		var name, namespace string
		fmt.Sscan(of, &name, &namespace)
		if out, err := w.Kubectl(ctx, "", "rollout", "status", name, namespace, "--timeout="+Patience.String()); err != nil {
			pods, _ := w.Kubectl(ctx, "", "describe", "pods", namespace)
			logs, _ := w.Kubectl(ctx, "", "logs", name, namespace, "--all-containers")
			return fmt.Errorf("%w\n%s%s%s", err, out, pods, logs)
		}
	}
	return nil
}

// services are called by the pods: a configuration server outside the mesh, and a server inside it. The
// timeout of their probes is 10 s, because with the default of one second the probes would fail on an
// overloaded node, and the pods would be removed from their Services.
const services = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: config, namespace: centre}
spec:
  selector: {matchLabels: {app: config}}
  template:
    metadata: {labels: {app: config}}
    spec:
      containers:
      - {name: config, image: "` + AppImage + `", command: [/app, serve], readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}}
---
apiVersion: v1
kind: Service
metadata: {name: config, namespace: centre}
spec: {selector: {app: config}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: server}}
  template:
    metadata:
      labels: {app: server}
      annotations: {sidecar.istio.io/proxyCPU: 10m, sidecar.istio.io/proxyMemory: 32Mi}
    spec:
      terminationGracePeriodSeconds: 15
      containers:
      - {name: server, image: "` + AppImage + `", command: [/app, serve, --stop, 3s], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}}
---
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {selector: {app: server}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: read-config}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: read-config, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: read-config}
subjects: [{kind: ServiceAccount, name: default, namespace: shop}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {colour: blue}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: strict}
spec: {mtls: {mode: STRICT}}
`
