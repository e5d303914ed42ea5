package inject

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/agent/config"
)

// environment is the proxy's: what the agent reads (internal/agent/config), by Istio's
// names where Istio has them. What a later source says of a name wins.
func (in *injection) environment(sidecar bool) ([]corev1.EnvVar, error) {
	s := in.settings
	agent, err := in.agentConfig()
	if err != nil {
		return nil, err
	}
	e := &environment{make([]corev1.EnvVar, 0, 24)} // about as many as there are
	e.field("POD_NAME", "metadata.name")
	e.field("POD_NAMESPACE", "metadata.namespace")
	e.field("INSTANCE_IP", "status.podIP")
	e.field("INSTANCE_IPS", "status.podIPs")
	e.field("SERVICE_ACCOUNT", "spec.serviceAccountName")
	e.field("HOST_IP", "status.hostIP")
	e.field("ISTIO_META_NODE_NAME", "spec.nodeName")
	if _, limited := s.resources.Limits[corev1.ResourceCPU]; limited {
		e.limit("ISTIO_CPU_LIMIT", "limits.cpu")
	}
	if _, limited := s.resources.Limits[corev1.ResourceMemory]; limited {
		e.limit("GOMEMLIMIT", "limits.memory")
	}
	e.set("PROXY_CONFIG", agent)
	e.set("CA_ADDR", in.o.Values.Global.CAAddress)
	e.set("TRUST_DOMAIN", s.mesh.TrustDomain)
	e.set("ISTIO_META_INTERCEPTION_MODE", s.mode)
	e.set("ISTIO_META_CLUSTER_ID", in.o.Values.Global.MultiCluster.ClusterName)
	e.set("ISTIO_META_NETWORK", in.o.Values.Global.Network)
	e.set("ISTIO_META_MESH_ID", in.o.Values.Global.MeshID)
	e.set("ISTIO_META_POD_PORTS", podPorts(in.pod))
	e.set("ISTIO_META_APP_CONTAINERS", strings.Join(in.apps(), ","))
	e.set("ISTIO_META_WORKLOAD_NAME", in.workloadName())
	e.set("ISTIO_META_OWNER", in.owner())
	e.set("OUTRIDER_GRACE", in.grace())
	if sidecar {
		e.set("OUTRIDER_ORDERED_STOP", "true")
	}
	e.set("OUTRIDER_PREWARM", in.pod.Annotations[prewarmKey])
	e.set("OUTRIDER_PUSH", in.pod.Annotations[pushKey])
	if in.pod.Annotations[bootstrapKey] != "" {
		e.set("ISTIO_BOOTSTRAP_OVERRIDE", bootDir+"/"+bootFile)
	}
	for _, more := range []map[string]string{s.config.ProxyMetadata, in.o.Environ} {
		for _, name := range slices.Sorted(maps.Keys(more)) {
			e.replace(name, more[name])
		}
	}
	return e.list, nil
}

type environment struct{ list []corev1.EnvVar }

// set adds a variable, unless it is empty.
func (e *environment) set(name, value string) {
	if value != "" {
		e.list = append(e.list, corev1.EnvVar{Name: name, Value: value})
	}
}

// replace sets a variable, in the place of one that is there.
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

// podPorts are the ports that the app's containers declare, as JSON.
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
	text, err := json.Marshal(out)
	if err != nil {
		return "" // names and numbers
	}
	return string(text)
}

// apps are the containers whose end the proxy outlives: not those that must complete
// before it runs.
func (in *injection) apps() []string {
	var out []string
	for _, c := range in.pod.Spec.Containers {
		out = append(out, c.Name)
	}
	return out
}

// workload is what made the pod: its controller, and of a ReplicaSet with a hash in its
// name the Deployment (Istio: pkg/kube/controllers, GetDeployMetaFromPod).
func (in *injection) workload() Workload {
	w := in.o.Workload
	if w.Name != "" {
		return w
	}
	for _, ref := range in.pod.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		w = Workload{ref.APIVersion, ref.Kind, ref.Name}
		if hash := in.pod.Labels["pod-template-hash"]; ref.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(ref.Name, "-"+hash) {
			w.Kind, w.Name = "Deployment", strings.TrimSuffix(ref.Name, "-"+hash)
		}
		return w
	}
	name := in.pod.Name
	if name == "" {
		name = strings.TrimSuffix(in.pod.GenerateName, "-")
	}
	return Workload{"v1", "Pod", name}
}

func (in *injection) workloadName() string { return in.workload().Name }

// owner has Istio's form: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME.
func (in *injection) owner() string {
	w := in.workload()
	if w.Name == "" || in.ns.Name == "" {
		return ""
	}
	return "kubernetes://apis/" + w.APIVersion + "/namespaces/" + in.ns.Name + "/" + strings.ToLower(w.Kind) + "s/" + w.Name
}

// checkConfig asks the agent's own reader whether it could use what the pod says, so
// that a mistake shows at admission, and not in a container that does not start.
func (in *injection) checkConfig() error {
	text, ok := in.pod.Annotations[proxyConfigKey]
	if !ok || !in.settings.proxy {
		return nil
	}
	agent, err := in.agentConfig()
	if err != nil {
		return err
	}
	environ := append(slices.Clone(anyPod), "PROXY_CONFIG="+agent, "OUTRIDER_GRACE="+in.grace())
	c, err := config.Read(config.Inputs{
		Environ:  environ,
		ReadFile: annotationFile(proxyConfigKey, text),
	})
	if err != nil {
		return refuse(BadAnnotation, "", "annotation %s: the agent could not use it: %v", proxyConfigKey, err)
	}
	for _, note := range c.Notes {
		in.warn("%s", note)
	}
	return nil
}

// annotationFile is a file system with one file, the annotations as the downward API
// writes them.
func annotationFile(key, value string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if name != config.Default().Annotations {
			return nil, fs.ErrNotExist
		}
		return []byte(key + "=" + strconv.Quote(value) + "\n"), nil
	}
}
