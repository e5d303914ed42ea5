package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
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
	OwnLabels    bool               // Istio's labels are another injector's: those of ours alone ask for injection

	// Commands are those of images, by the image as a container names it. Not nil says that
	// commands may be looked up: [Result.Unknown] then has the images to ask for. Default:
	// what is not in the pod is not known.
	Commands map[string]ImageCommand
}

// Images are references, or names in the hub of the values.
type Images struct{ Proxy, Init string }

// A Workload is what made a pod.
type Workload struct{ APIVersion, Kind, Name string }

// A Result is what became of a pod.
type Result struct {
	Pod      *corev1.Pod // the injected one; as it was given if it is not injected, without what was ours
	Injected bool
	Reason   Reason
	Warnings []string // what its author should know
	Notes    []string // what was decided, and why so

	Proxy     bool              // it gets a proxy of ours
	Captured  bool              // which has the pod's connections
	NoEffect  map[string]string // annotations that do nothing in this pod, and why
	Clashes   []Clash           // ports that the application and the proxy both have
	NeverEnds []string          // plain containers of a Job of whose end its proxy, a plain one too, does not hear
	Unknown   []string          // images whose commands would make gates possible, with [Options.Commands]; also of a pod that is refused

	given *corev1.Pod
}

func (o Options) revision() string {
	for _, r := range []string{o.Revision, o.Values.Revision} {
		if r != "" {
			return r
		}
	}
	return DefaultRevision
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
	volumes   []corev1.Volume // the user's, for the proxy
	mounts    []corev1.VolumeMount
	beside    bool // another mesh has the proxy
	noEffect  map[string]string
	neverEnds []string
	clashes   []Clash
	unknown   []string

	unknownWhy map[string]string // commands of containers; nil: nobody looks them up

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

// idle notes that an annotation has no effect.
func (in *injection) idle(key, why string) {
	if in.noEffect == nil {
		in.noEffect = map[string]string{}
	}
	in.noEffect[key] = why
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
	if _, was := pod.Annotations[statusKey]; was {
		result.Pod = stripped.DeepCopy() // if nothing is to be injected now
	}
	in := &injection{o: o, ns: ns, pod: stripped, warnings: warnings, beside: stripped.Annotations[proxyKey] == "none"}
	if mesh := otherMesh(stripped); mesh != "" && !in.beside {
		if !asksForOurs(stripped, ns) {
			result.Reason = because(OtherMesh, "the container %s is another mesh's; annotate the pod %s: none to have order and parking beside it", mesh, proxyKey)
			return result, nil
		}
		in.beside = true
		in.note("the container %s is another mesh's: order and parking beside it, and no proxy of ours", mesh)
	}
	err = in.run()
	result.Proxy, result.Captured = !in.beside, in.settings.proxy && in.settings.capture
	result.NoEffect, result.Clashes, result.NeverEnds, result.Unknown = in.noEffect, in.clashes, in.neverEnds, in.unknown
	switch {
	case err != nil:
		return result, err
	case len(in.status.Containers)+len(in.status.InitContainers) == 0:
		result.Reason = because(NothingToDo, "no proxy, no capture and no order is asked for")
		result.Warnings = in.warnings
		return result, nil
	}
	result.Pod, result.Injected, result.Warnings, result.Notes = in.pod, true, in.warnings, in.notes
	return result, nil
}

// run is all steps. Those that read the pod as its author wrote it come first.
func (in *injection) run() error {
	for _, step := range []func() error{
		in.checkAnnotations,
		in.resolve,
		in.checkSecurity,
		in.checkConfig,
		in.takeOwn,
		in.checkVolumes,
		in.warnPorts,
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
