package localpod

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// Options describe a pod and the objects that it needs. The zero value of a field means its default.
type Options struct {
	Pod  corev1.Pod
	Plan startup.Plan // the plan with which the start is compared; if it has no containers, nothing is compared
	Kube kubelet.Version

	ConfigMaps []corev1.ConfigMap // objects to which the pod may refer
	Secrets    []corev1.Secret

	// Entrypoints are the commands of images, for containers whose pod spec has no command. No other part of an
	// image is supported.
	Entrypoints map[string][]string

	// Binds are files and directories that appear read-only in all containers, as a replacement for the content
	// of images.
	Binds []Bind

	// Token returns the service account token for an audience; an empty audience means the API server. If Token is
	// nil, volumes with tokens are refused.
	Token func(audience string) ([]byte, error)

	// AllowHostPath allows hostPath volumes, which are the machine's own directories, not copies. AllowPrivileged
	// allows privileged containers and capabilities beyond [podOnly], which can affect the whole machine.
	AllowHostPath, AllowPrivileged bool

	Hosts map[string]string // names with their addresses, for /etc/hosts

	// Line is called with each line that a container writes, without its newline; Journal is called with each
	// journal entry. They are never called concurrently, and the pod does not proceed until they return.
	Line    func(container, line string)
	Journal func(Entry)
}

// A Bind shows a file or directory of this machine at another path.
type Bind struct{ From, To string }

// A SpecError is the error for a field of a pod spec that cannot be run here.
type SpecError struct {
	Field  string
	Reason string
	Hint   string // what to do instead
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

// An unsupported is a field of the pod that would change its behaviour but is not implemented.
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

// check returns an error for everything in the pod that cannot be run here.
func (o *Options) check() error {
	var all []error
	for _, u := range unsupportedFields {
		if u.in(o.Pod.Spec) {
			all = append(all, refuse(u.field, "not done here").but("%s", u.hint))
		}
	}
	all = append(all, validation.Check(&o.Pod), checkSysctls(&o.Pod))
	seen := map[string]bool{}
	for _, c := range containersOf(&o.Pod) {
		if seen[c.Name] {
			all = append(all, refuse(c.field+".name", "%q is another container's name", c.Name))
		}
		seen[c.Name] = true
	}
	return errors.Join(all...)
}

// A carrier is a container with its path in the pod spec.
type carrier struct {
	*corev1.Container
	field string
}

// containersOf returns all containers, init containers first.
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

// known lists the names of a map for a hint.
func known[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
