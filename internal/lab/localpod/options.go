package localpod

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// Options are a pod and what it needs. The zero value of a field means its default.
type Options struct {
	Pod  corev1.Pod
	Plan startup.Plan // what its start is compared with; without containers, with nothing
	Kube kubelet.Version

	ConfigMaps []corev1.ConfigMap // that the pod may refer to
	Secrets    []corev1.Secret

	// Entrypoints are the commands of images, for containers without a command in
	// the pod spec. There are no images otherwise.
	Entrypoints map[string][]string

	// Binds are shown, read-only, in all containers: what their images would bring.
	Binds []Bind

	// Token is the service account token for an audience; empty is the API server's.
	// Without it a volume with a token is refused.
	Token func(audience string) ([]byte, error)

	// AllowHostPath allows volumes of this machine's own directories, not copies.
	// AllowPrivileged allows what acts on the whole machine: privileged containers, and
	// capabilities beyond those of [podOnly].
	AllowHostPath, AllowPrivileged bool

	Hosts map[string]string // name: address, for /etc/hosts

	// Line gets each line that a container writes, without its end; Journal gets
	// each of its entries. Neither is called twice at a time, and what they do
	// holds up the pod.
	Line    func(container, line string)
	Journal func(Entry)
}

// A Bind shows a file or directory of this machine at another path.
type Bind struct{ From, To string }

// A SpecError is something in a pod that cannot be run here.
type SpecError struct {
	Field  string
	Reason string
	Hint   string // what would be right
}

func (e *SpecError) Error() string {
	if e.Hint == "" {
		return e.Field + ": " + e.Reason
	}
	return e.Field + ": " + e.Reason + "; " + e.Hint
}

func refuse(field, format string, args ...any) *SpecError {
	return &SpecError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (e *SpecError) but(hint string, args ...any) *SpecError {
	e.Hint = fmt.Sprintf(hint, args...)
	return e
}

func (o *Options) setDefaults() {
	o.Pod = *o.Pod.DeepCopy()
	m, s := &o.Pod.ObjectMeta, &o.Pod.Spec
	if m.Name == "" {
		m.Name = strings.TrimSuffix(m.GenerateName, "-")
	}
	if m.Name == "" {
		m.Name = "pod"
	}
	if m.Namespace == "" {
		m.Namespace = "default"
	}
	if m.UID == "" {
		m.UID = "00000000-0000-4000-8000-000000000000"
	}
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = "default"
	}
	if o.Kube == (kubelet.Version{}) {
		o.Kube = kubelet.Minor(kubelet.Newest)
	}
	if o.Line == nil {
		o.Line = func(string, string) {}
	}
	if o.Journal == nil {
		o.Journal = func(Entry) {}
	}
}

// An unsupported is a field of the pod that would change what it does, and that is not done.
type unsupported struct {
	field string
	in    func(corev1.PodSpec) bool
	hint  string
}

var unsupportedFields = []unsupported{
	{"spec.hostNetwork", func(s corev1.PodSpec) bool { return s.HostNetwork }, "leave it out: the pod has a network of its own here"},
	{"spec.hostPID", func(s corev1.PodSpec) bool { return s.HostPID }, "leave it out"},
	{"spec.hostIPC", func(s corev1.PodSpec) bool { return s.HostIPC }, "leave it out"},
	{"spec.shareProcessNamespace", func(s corev1.PodSpec) bool { return s.ShareProcessNamespace != nil && *s.ShareProcessNamespace },
		"leave it out: each container has its own processes here"},
	{"spec.hostUsers", func(s corev1.PodSpec) bool { return s.HostUsers != nil && !*s.HostUsers }, "leave it out"},
	{"spec.ephemeralContainers", func(s corev1.PodSpec) bool { return len(s.EphemeralContainers) > 0 }, "leave them out"},
}

// check returns everything in the pod that cannot be run here.
func (o *Options) check() error {
	var all []error
	for _, u := range unsupportedFields {
		if u.in(o.Pod.Spec) {
			all = append(all, refuse(u.field, "not done here").but("%s", u.hint))
		}
	}
	all = append(all, podspec.Check(&o.Pod), checkSysctls(&o.Pod))
	seen := map[string]bool{}
	for _, c := range containersOf(&o.Pod) {
		if seen[c.Name] {
			all = append(all, refuse(c.field+".name", "%q is another container's name", c.Name))
		}
		seen[c.Name] = true
	}
	return errors.Join(all...)
}

// A carrier is a container and where it stands.
type carrier struct {
	*corev1.Container
	field string
}

// containersOf are the containers, init containers first.
func containersOf(pod *corev1.Pod) []carrier {
	var out []carrier
	for i := range pod.Spec.InitContainers {
		out = append(out, carrier{&pod.Spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i)})
	}
	for i := range pod.Spec.Containers {
		out = append(out, carrier{&pod.Spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i)})
	}
	return out
}

// known lists names for a hint.
func known[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
