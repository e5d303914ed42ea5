package inject

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/order"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/patch"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// A Namespace is a pod's namespace. Nil Labels mean that the labels are unknown; the pod is then not rejected
// because a label is missing.
type Namespace struct {
	Name                string
	Labels, Annotations map[string]string
}

// Options are the settings of the mesh and of the caller. The zero value of a field means its default.
type Options struct {
	Images       Images
	Mesh         settings.Mesh
	Values       settings.Values
	Kubernetes   startup.Kubernetes // version of the nodes; default 1.34
	ControlPlane string             // host:port; default outriderd.outrider-system.svc:15012
	RootCA       string             // name of the ConfigMap with root-cert.pem; default outrider-ca-root-cert
	TrustSigner  string             // signer whose ClusterTrustBundle replaces the ConfigMap; default: none
	Revision     string             // default: the revision in the values, else "default"
	Manual       bool               // injection by hand: a namespace without a label is injected
	Workload     Workload           // default: the pod's owner
	Claims       []string           // volumes that a StatefulSet adds to the pod, by its volumeClaimTemplates
	Environ      map[string]string  // additional environment variables of the proxy
	OwnLabels    bool               // Istio's labels belong to another injector: only our labels count
	NodeServes   bool               // all nodes of the cluster run outrider-node

	// ProbeKey returns a secret that becomes part of the paths of a workload's probes and hooks, so that the
	// agent recognises requests of the kubelet. Default: no secret; the agent recognises the kubelet by its
	// address.
	ProbeKey func(workload string) string

	// Interrupted returns an error if the result is no longer needed, like [context.Context.Err]. It is called
	// between the steps. Default: never interrupted.
	Interrupted func() error

	// Commands maps a container's image reference to the command of that image. If it is not nil, the caller can
	// look up more commands: [Result.Unknown] then lists the images for which it should. Default: a command that
	// the pod does not set is unknown.
	Commands map[string]imagecmd.Command
}

// Images holds image references, or names that are completed with the hub and the tag of the values.
type Images struct{ Proxy, Init string }

// A Workload is the owner of a pod.
type Workload struct{ APIVersion, Kind, Name string }

// A Result is the outcome of [Pod].
type Result struct {
	Pod      *corev1.Pod // the injected pod; if it is not injected, the given pod without any earlier injection
	Injected bool
	Reason   verdict.Reason
	Warnings []string // for the pod's author
	Notes    []string // decisions and their reasons

	Proxy     bool              // the pod gets our proxy
	Captured  bool              // the pod's connections go through our proxy
	NoEffect  map[string]string // annotations of this pod that have no effect, with the reasons
	NoLabel   map[string]string // labels of this pod that have no effect, with the reasons
	Clashes   []Clash           // ports that both the application declares and the proxy uses
	NeverEnds []string          // containers of a Job whose end is not reported to a proxy that is a regular container
	Unknown   []string          // images whose commands would make gates possible ([Options.Commands]), also of a refused pod

	given *corev1.Pod
}

// Patch returns the operations that turn the given pod into the injected one; none if they are equal.
func (r Result) Patch() []patch.Operation {
	if r.Pod == r.given {
		return nil
	}
	return patch.Diff(r.given, r.Pod)
}

func (o Options) interrupted() error {
	if o.Interrupted == nil {
		return nil
	}
	return o.Interrupted()
}

func (o Options) revision() string {
	return cmp.Or(o.Revision, o.Values.Revision, contract.DefaultRevision)
}

func (o Options) controlPlane() string {
	return cmp.Or(o.ControlPlane, contract.ControlPlaneAddress)
}

func (o Options) kubernetes() startup.Kubernetes {
	if o.Kubernetes == 0 {
		return 34
	}
	return o.Kubernetes
}

// Check validates the options by the same rules as the corresponding annotations. The values are validated when
// they are read.
func (o Options) Check() error {
	for _, s := range []struct {
		name, value string
		check       func(string) error
	}{
		{"the address of the control plane", o.ControlPlane, settings.Address},
		{"the revision", o.Revision, settings.Label},
		{"the ConfigMap with the mesh's root", o.RootCA, settings.ObjectName},
		{"the image of the proxy", o.Images.Proxy, settings.ImageName},
		{"the image of the init container", o.Images.Init, settings.ImageName},
	} {
		if err := settings.Check(s.name, s.value, s.check); err != nil {
			return err
		}
	}
	return nil
}

// Pod injects a pod, or returns the reason why it does not. The error is a [*verdict.Refusal] if the pod must not
// run as given, because its author requested something impossible. Any other error concerns the options.
func Pod(pod *corev1.Pod, ns Namespace, o Options) (Result, error) {
	if ns.Name == "" {
		ns.Name = pod.Namespace
	}
	result := Result{Pod: pod, given: pod}
	result.Reason, result.Warnings = decide(pod, ns, o)
	if result.Reason.Code != verdict.Injected {
		return result, nil
	}
	if err := validation.CheckSize(pod); err != nil {
		return result, verdict.Refuse(verdict.TooLarge, "", "%v", err)
	}
	in, err := readInput(pod, ns, o)
	if err != nil {
		return result, err
	}
	if _, was := pod.Annotations[contract.Status]; was {
		result.Pod = in.stripped // this remains the result unless the pod is injected again
	}
	r := verdict.Report{Warnings: result.Warnings}
	alongside, reason := decideProxy(in.pod, ns)
	if reason.Code != verdict.Injected {
		result.Reason = reason
		return result, nil
	}
	if in.alongside = alongside; alongside && reason.Sentence != "" {
		r.Note("%s", reason.Sentence)
	}
	err = in.inject(&result, &r)
	result.NoEffect = r.NoEffect
	return result, err
}

// inject runs the steps after the decision: settings, plan, write.
func (in input) inject(result *Result, r *verdict.Report) error {
	result.Proxy = !in.alongside
	s, err := settingsOf(in, r)
	result.Captured, result.NoLabel, result.Clashes = s.proxy && s.capture, s.noLabel, s.clashes
	if err != nil {
		return err
	}
	p, err := order.Of(in.order(s), r)
	result.Unknown = p.Unknown
	if err == nil {
		noteReadiness(p.Pod, r)
		err = in.o.interrupted()
	}
	if err != nil {
		return err
	}
	w, err := write(in, s, p, r)
	result.NeverEnds = w.neverEnds
	if err == nil && w.added {
		err = p.Judge(w.pod, in.o.kubernetes())
	}
	if err != nil {
		return err
	}
	result.Warnings = r.Warnings
	if !w.added {
		result.Reason = verdict.Because(verdict.NothingToDo, "no proxy, no capture and no order is requested")
		return nil
	}
	result.Pod, result.Injected, result.Notes = w.pod, true, r.Notes
	return nil
}

// order returns the input of package order, which plans the start.
func (in input) order(s effective) order.Request {
	out := order.Request{Pod: in.pod, Kubernetes: in.o.kubernetes(), Before: in.own.before, Captured: s.capture, ByNode: s.byNode(),
		OtherMesh: in.mesh, Alongside: in.alongside, Hold: s.hold(in.o.Values), Native: in.o.Values.Native(), Commands: in.o.Commands, Interrupted: in.o.interrupted}
	if s.proxy {
		out.Proxy = func(sidecar bool, r *verdict.Report) (corev1.Container, error) {
			return proxyContainer(in, s, sidecar, r)
		}
	}
	return out
}

// An input holds everything that the steps after the decision read. The steps do not change it.
type input struct {
	o         Options
	ns        Namespace
	stripped  *corev1.Pod // the given pod without an earlier injection
	pod       *corev1.Pod // stripped without the containers in own
	own       ownContainers
	mesh      string // name of the container with another mesh's proxy; empty if there is none
	key       string // key in the paths of the probes, from an earlier injection
	alongside bool   // another mesh provides the proxy: injection adds only order and parking
}

// readInput separates what the pod's author wrote from what an earlier injection added.
func readInput(pod *corev1.Pod, ns Namespace, o Options) (input, error) {
	stripped, err := Stripped(pod)
	if err != nil {
		return input{}, err
	}
	in := input{o: o, ns: ns, stripped: stripped, key: keyOf(pod)}
	in.pod, in.own = withoutOwn(stripped, o)
	in.mesh = ProxyOfOtherMesh(in.pod)
	return in, nil
}

// annotations returns the annotations that apply to us. If another mesh has the proxy, these are only those with
// our own prefix, and the two for the proxy's configuration and the interception mode.
func (in input) annotations() map[string]string {
	if !in.alongside {
		return in.pod.Annotations
	}
	out := maps.Clone(in.pod.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !strings.HasPrefix(key, contract.Prefix) && key != contract.ProxyConfig && key != contract.InterceptionMode
	})
	return out
}

// workload returns the pod's owner: its controller, or the Deployment if the controller is a ReplicaSet whose
// name ends in the pod's template hash (Istio: pkg/kube/controllers, GetDeployMetaFromPod).
func (in input) workload() Workload {
	if in.o.Workload.Name != "" {
		return in.o.Workload
	}
	for _, ref := range in.pod.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		w := Workload{ref.APIVersion, ref.Kind, ref.Name}
		if hash := in.pod.Labels["pod-template-hash"]; ref.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(ref.Name, "-"+hash) {
			w.Kind, w.Name = "Deployment", strings.TrimSuffix(ref.Name, "-"+hash)
		}
		return w
	}
	return Workload{"v1", "Pod", cmp.Or(in.pod.Name, strings.TrimSuffix(in.pod.GenerateName, "-"))}
}

func asJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// Resolving is [Pod] with commands that the function look returns. It calls look at most once, with the images
// whose commands must be known for a gate. Most pods have no such image. If look does not return the command of
// an image, injection adds no gate to its container.
func Resolving(pod *corev1.Pod, ns Namespace, o Options, look func(images []string) map[string]imagecmd.Command) (Result, error) {
	o.Commands = map[string]imagecmd.Command{}
	r, err := Pod(pod, ns, o)
	if len(r.Unknown) == 0 {
		return r, err
	}
	o.Commands = look(r.Unknown)
	return Pod(pod, ns, o)
}

// Stripped returns a copy of the pod as it was before any injection.
func Stripped(pod *corev1.Pod) (*corev1.Pod, error) {
	out, _, err := Uninjected(pod)
	return out, err
}

// Uninjected is [Stripped]; it also lists the fields that cannot be restored.
func Uninjected(pod *corev1.Pod) (out *corev1.Pod, lost []string, err error) {
	return changes.Undone(pod, restoreProbes)
}
