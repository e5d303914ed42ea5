package inject

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
)

// environment returns the variables that the agent reads (internal/core/agent/config), by Istio's names if
// Istio has them. If two sources set one name, the later one takes precedence.
func (in input) environment(s effective, sidecar bool) []corev1.EnvVar {
	e := &environment{}
	e.field("POD_NAME", "metadata.name")
	e.field("POD_NAMESPACE", "metadata.namespace")
	e.field("INSTANCE_IP", "status.podIP")
	e.field(contract.MetadataAddresses, "status.podIPs")
	e.field(contract.MetadataServiceAccount, "spec.serviceAccountName")
	e.field("HOST_IP", "status.hostIP")
	e.field("ISTIO_META_NODE_NAME", "spec.nodeName")
	if _, limited := s.resources.Limits[corev1.ResourceCPU]; limited {
		e.limit("ISTIO_CPU_LIMIT", "limits.cpu")
	}
	if _, limited := s.resources.Limits[corev1.ResourceMemory]; limited {
		e.limit("GOMEMLIMIT", "limits.memory")
	}
	e.set("PROXY_CONFIG", s.agentConfig)
	e.set("CA_ADDR", in.o.Values.Global.CAAddress)
	e.set("TRUST_DOMAIN", s.mesh.TrustDomain)
	e.set("ISTIO_META_"+contract.MetadataInterception, s.mode)
	e.set("ISTIO_META_CLUSTER_ID", in.o.Values.Global.MultiCluster.ClusterName)
	e.set("ISTIO_META_NETWORK", cmp.Or(in.pod.Labels[settings.NetworkLabel], in.o.Values.Global.Network))
	e.set("ISTIO_META_MESH_ID", cmp.Or(in.o.Values.Global.MeshID, s.config.MeshID))
	e.set("ISTIO_META_POD_PORTS", podPorts(in.pod))
	e.set("ISTIO_META_APP_CONTAINERS", strings.Join(containers.Names(in.pod.Spec.Containers), ","))
	e.set("ISTIO_META_"+contract.MetadataWorkload, in.workload().Name)
	e.set("ISTIO_META_OWNER", in.owner())
	e.set("OUTRIDER_GRACE", s.grace)
	if sidecar {
		e.set("OUTRIDER_ORDERED_STOP", "true")
	}
	e.set("OUTRIDER_PREWARM", in.pod.Annotations[contract.Prewarm])
	if in.pod.Annotations[settings.BootstrapKey] != "" {
		e.set("ISTIO_BOOTSTRAP_OVERRIDE", contract.BootstrapDir+"/"+contract.BootstrapFile)
	}
	for _, name := range slices.Sorted(maps.Keys(s.config.ProxyMetadata)) {
		e.replace(name, string(s.config.ProxyMetadata[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(in.o.Environ)) {
		e.replace(name, in.o.Environ[name])
	}
	return e.list
}

type environment struct{ list []corev1.EnvVar }

// set adds a variable, unless it is empty.
func (e *environment) set(name, value string) {
	if value != "" {
		e.list = append(e.list, corev1.EnvVar{Name: name, Value: value})
	}
}

// replace sets a variable, and keeps its position if it is there already.
func (e *environment) replace(name, value string) {
	if i := slices.IndexFunc(e.list, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		e.list[i] = corev1.EnvVar{Name: name, Value: value}
		return
	}
	e.list = append(e.list, corev1.EnvVar{Name: name, Value: value})
}

func (e *environment) field(name, path string) {
	e.list = append(e.list, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}})
}

var one = resource.MustParse("1")

func (e *environment) limit(name, of string) {
	e.list = append(e.list, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: one}}})
}

// podPorts returns the ports that the app's containers declare, as JSON.
func podPorts(pod *corev1.Pod) string {
	type port struct {
		Name          string          `json:"name,omitempty"`
		ContainerPort int32           `json:"containerPort"`
		Protocol      corev1.Protocol `json:"protocol,omitempty"`
	}
	out := []port{}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			out = append(out, port{p.Name, p.ContainerPort, p.Protocol})
		}
	}
	text, _ := asJSON(out) // cannot fail: names and numbers
	return text
}

// owner returns the pod's owner in Istio's form: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME.
func (in input) owner() string {
	w := in.workload()
	if w.Name == "" || in.ns.Name == "" {
		return ""
	}
	return "kubernetes://apis/" + w.APIVersion + "/namespaces/" + in.ns.Name + "/" + strings.ToLower(w.Kind) + "s/" + w.Name
}
