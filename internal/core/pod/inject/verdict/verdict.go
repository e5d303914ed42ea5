// Package verdict defines the result of an injection: the reason why a pod is injected, left unchanged or
// refused, and the messages for its author.
package verdict

import "fmt"

// A Code identifies the reason why a pod is injected or not. Codes are stable, because metrics use them as
// labels.
type Code string

// Codes of the reasons. The codes with the comment "refused" are codes of a [*Refusal].
const (
	Injected            Code = "injected"
	HostNetwork         Code = "host-network"
	IgnoredNamespace    Code = "ignored-namespace"
	PodOptsOut          Code = "pod-opts-out"          // the pod's label or annotation is "false"
	NamespaceOptsOut    Code = "namespace-opts-out"    // istio-injection has a value other than "enabled"
	OtherRevision       Code = "other-revision"        // istio.io/rev names another revision
	NotRequested        Code = "not-requested"         // neither pod nor namespace has a label that requests injection
	OtherInjector       Code = "other-injector"        // only Istio's labels request injection, and they belong to another injector
	NeverInjectSelector Code = "never-inject-selector" // neverInjectSelector matches
	PolicyDisabled      Code = "policy-disabled"       // autoInject is not "enabled"
	NotLinux            Code = "not-linux"             // not a Linux pod
	OtherMesh           Code = "other-mesh"            // the pod has another mesh's proxy
	NothingToDo         Code = "nothing-to-do"         // no proxy, no capture and no order is requested

	InvalidAnnotation Code = "invalid-annotation" // refused: an annotation has an invalid value
	PodSecurity       Code = "pod-security"       // refused: the namespace's pod security level would refuse the injected pod
	NoMechanism       Code = "no-mechanism"       // refused: no mechanism can keep a requested edge
	InvalidGraph      Code = "invalid-graph"      // refused: the requested edges contradict one another
	InvalidOverride   Code = "invalid-override"   // refused: the author's own container with our name is invalid
	TooLarge          Code = "too-large"          // refused: more containers, edges or annotations than a pod can have
	ImageRefused      Code = "image-refused"      // refused: an image that the mesh does not allow for its containers
	PortConflict      Code = "port-conflict"      // refused: a port of the mesh is used for something else
	VolumeConflict    Code = "volume-conflict"    // refused: the name of a volume of the mesh is used for something else
	MountConflict     Code = "mount-conflict"     // refused: a directory of the mesh is used for something else
)

// A Reason is the reason why a pod is injected or not, as a code and a sentence.
type Reason struct {
	Code     Code   `json:"code"`
	Sentence string `json:"sentence"`
}

// Because returns a reason with a formatted sentence.
func Because(code Code, format string, args ...any) Reason {
	return Reason{code, fmt.Sprintf(format, args...)}
}

// A Refusal is the error for a pod that cannot be injected, and must not run without injection because its
// author requested something impossible.
type Refusal struct {
	Reason
	Hint string // what the author can do; may be empty
}

func (r *Refusal) Error() string { return r.Sentence }

// Refuse returns a [*Refusal] with a formatted sentence. The hint may be empty.
func Refuse(code Code, hint, format string, args ...any) error {
	return &Refusal{Because(code, format, args...), hint}
}

// A Report collects the messages about a pod that is injected.
type Report struct {
	Warnings []string          // for the pod's author
	Notes    []string          // decisions and their reasons
	NoEffect map[string]string // annotations of this pod that have no effect, with the reasons
}

// Warn adds a warning for the pod's author.
func (r *Report) Warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// Note adds a decision and its reason.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Add appends the warnings and notes of another report.
func (r *Report) Add(said *Report) {
	r.Warnings, r.Notes = append(r.Warnings, said.Warnings...), append(r.Notes, said.Notes...)
}

// Ignored records the reason why an annotation has no effect.
func (r *Report) Ignored(key, why string) {
	if r.NoEffect == nil {
		r.NoEffect = map[string]string{}
	}
	r.NoEffect[key] = why
}
