package inject

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
)

// environment returns the environment variables of the agent (internal/core/agent/config). They have Istio's
// names where Istio has such a variable. If a name is set twice, the later value takes precedence.
func (in input) environment(s effective, sidecar bool) []corev1.EnvVar {
	e := &containers.Environment{}
	e.Field("POD_NAME", "metadata.name")
	e.Field("POD_NAMESPACE", "metadata.namespace")
	e.Field("INSTANCE_IP", "status.podIP")
	e.Field(contract.MetadataAddresses, "status.podIPs")
	e.Field(contract.MetadataServiceAccount, "spec.serviceAccountName")
	e.Field("HOST_IP", "status.hostIP")
	e.Field("ISTIO_META_NODE_NAME", "spec.nodeName")
	if _, limited := s.resources.Limits[corev1.ResourceCPU]; limited {
		e.Limit("ISTIO_CPU_LIMIT", "limits.cpu")
	}
	if _, limited := s.resources.Limits[corev1.ResourceMemory]; limited {
		e.Limit("GOMEMLIMIT", "limits.memory")
	}
	e.Set("PROXY_CONFIG", s.agentConfig)
	e.Set("CA_ADDR", in.o.Values.Global.CAAddress)
	e.Set("TRUST_DOMAIN", s.mesh.TrustDomain)
	e.Set("ISTIO_META_"+contract.MetadataInterception, s.mode)
	e.Set("ISTIO_META_CLUSTER_ID", in.o.Values.Global.MultiCluster.ClusterName)
	e.Set("ISTIO_META_NETWORK", cmp.Or(in.pod.Labels[settings.NetworkLabel], in.o.Values.Global.Network))
	e.Set("ISTIO_META_MESH_ID", cmp.Or(in.o.Values.Global.MeshID, s.config.MeshID))
	e.Set("ISTIO_META_POD_PORTS", containers.DeclaredPorts(in.pod))
	e.Set("ISTIO_META_APP_CONTAINERS", strings.Join(containers.Names(in.pod.Spec.Containers), ","))
	e.Set("ISTIO_META_"+contract.MetadataWorkload, in.workload().Name)
	e.Set("ISTIO_META_OWNER", in.owner())
	e.Set("OUTRIDER_GRACE", s.grace)
	if sidecar {
		e.Set("OUTRIDER_ORDERED_STOP", "true")
	}
	e.Set("OUTRIDER_PREWARM", in.pod.Annotations[contract.Prewarm])
	if in.pod.Annotations[settings.BootstrapKey] != "" {
		e.Set("ISTIO_BOOTSTRAP_OVERRIDE", contract.BootstrapDir+"/"+contract.BootstrapFile)
	}
	for _, name := range slices.Sorted(maps.Keys(s.config.ProxyMetadata)) {
		e.Replace(name, string(s.config.ProxyMetadata[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(in.o.Environ)) {
		e.Replace(name, in.o.Environ[name])
	}
	return e.List
}

// owner returns the pod's owner in Istio's form: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME.
func (in input) owner() string {
	w := in.workload()
	if w.Name == "" || in.ns.Name == "" {
		return ""
	}
	return "kubernetes://apis/" + w.APIVersion + "/namespaces/" + in.ns.Name + "/" + strings.ToLower(w.Kind) + "s/" + w.Name
}
