package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/podspec"
	"outrider.dev/startup"
)

// A Namespace is what of a pod's namespace counts. Labels that are nil are not known:
// then nothing is concluded from what is not there.
type Namespace struct {
	Name                string
	Labels, Annotations map[string]string
}

// Options are what the mesh, and who asks, say. The zero value of a field means its default.
type Options struct {
	Images       Images
	Mesh         Mesh
	Values       Values
	Kubernetes   startup.Kubernetes // of the nodes; default 1.34
	ControlPlane string             // host:port; default outriderd.outrider-system.svc:15012
	RootCA       string             // ConfigMap with root-cert.pem; default outrider-ca-root-cert
	Revision     string             // default: that of the values, else "default"
	Manual       bool               // a person asked for it: a namespace without a label is no "no"
	Workload     Workload           // whose pod it is, where the pod does not say so itself
	Environ      map[string]string  // more variables of the proxy
}

// Images are references, or names in the hub of the values.
type Images struct{ Proxy, Init string }

// A Workload is what made a pod.
type Workload struct{ APIVersion, Kind, Name string }

// A Result is what became of a pod.
type Result struct {
	Pod      *corev1.Pod // the injected one; as it was given if it is not injected
	Injected bool
	Reason   Reason
	Warnings []string // what its author should know
	Notes    []string // what was decided, and why so

	given *corev1.Pod
}

func (o Options) revision() string {
	for _, r := range []string{o.Revision, o.Values.Revision} {
		if r != "" {
			return r
		}
	}
	return defaultRevision
}

func (o Options) controlPlane() string {
	if o.ControlPlane != "" {
		return o.ControlPlane
	}
	return "outriderd.outrider-system.svc:15012"
}

func (o Options) kubernetes() startup.Kubernetes {
	if o.Kubernetes == 0 {
		return 34
	}
	return o.Kubernetes
}

// An injection is one pod on its way.
type injection struct {
	o   Options
	ns  Namespace
	pod *corev1.Pod // becomes the injected one

	settings settings
	own      map[string]corev1.Container // the user's own containers of our names
	memory   memory
	status   status
	scrape   string // ISTIO_PROMETHEUS_ANNOTATIONS

	hadVolume map[string]bool

	warnings []string
	notes    []string
}

func (in *injection) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(in.warnings, w) {
		in.warnings = append(in.warnings, w)
	}
}

func (in *injection) note(format string, args ...any) {
	in.notes = append(in.notes, fmt.Sprintf(format, args...))
}

// Pod injects a pod, or says why not. The error is a [*Refusal] if the pod must not run
// as it is, because its author asked for what cannot be had; any other one is of the
// options.
func Pod(pod *corev1.Pod, ns Namespace, o Options) (Result, error) {
	if ns.Name == "" {
		ns.Name = pod.Namespace
	}
	reason, warnings := decide(pod, ns, o)
	result := Result{Pod: pod, Reason: reason, Warnings: warnings, given: pod}
	if reason.Code != Injected {
		return result, nil
	}
	stripped, err := Stripped(pod)
	if err != nil {
		return result, err
	}
	if mesh := otherMesh(stripped); mesh != "" && stripped.Annotations[proxyKey] != "none" {
		result.Reason = because(OtherMesh, "the container %s is another mesh's; annotate the pod %s: none to have order and parking beside it", mesh, proxyKey)
		return result, nil
	}
	in := &injection{o: o, ns: ns, pod: stripped, warnings: warnings}
	if err := in.run(); err != nil {
		return result, err
	}
	if len(in.status.Containers)+len(in.status.InitContainers) == 0 {
		result.Reason = because(NothingToDo, "no proxy, no capture and no order is asked for")
		result.Warnings = in.warnings
		return result, nil
	}
	result.Pod, result.Injected, result.Warnings, result.Notes = in.pod, true, in.warnings, in.notes
	return result, nil
}

// run is all steps. Those that read the pod as its author wrote it come first.
func (in *injection) run() error {
	warnings, err := checkAnnotations(in.pod.Annotations)
	if err != nil {
		return err
	}
	in.warnings = append(in.warnings, warnings...)
	for _, step := range []func() error{
		in.resolve,
		in.checkSecurity,
		in.checkConfig,
		in.takeOwn,
		in.addMetrics,
		in.order,
		in.addInit,
		in.rewriteProbes,
		in.addMetadata,
		in.record,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// otherMeshes are containers of other meshes' injectors.
var otherMeshes = []string{"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane"}

// otherMesh names the other mesh's proxy in the pod; empty if there is none.
func otherMesh(pod *corev1.Pod) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if slices.Contains(otherMeshes, c.Name) {
				return c.Name
			}
		}
	}
	return ""
}

// The names of our containers.
const (
	proxyName = podspec.OurProxy
	initName  = "outrider-init"
)

// find returns a container of the pod by its name; nil if there is none.
func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, named(name)); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func named(name string) func(corev1.Container) bool {
	return func(c corev1.Container) bool { return c.Name == name }
}

// each calls f for every container of the user.
func (in *injection) each(f func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{in.pod.Spec.InitContainers, in.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name != proxyName && list[i].Name != initName {
				f(&list[i])
			}
		}
	}
}
