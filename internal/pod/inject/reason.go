package inject

import "fmt"

// A Code names why a pod is not injected. Codes are stable: metrics have them as labels.
type Code string

// Why a pod is left as it is.
const (
	HostNetwork      Code = "host-network"
	IgnoredNamespace Code = "ignored-namespace"
	AskedNotTo       Code = "asked-not-to"      // the pod's label or annotation
	NamespaceSaysNo  Code = "namespace-says-no" // istio-injection is there and not "enabled"
	OtherRevision    Code = "other-revision"    // istio.io/rev names another one
	NobodyAsked      Code = "nobody-asked"      // no label here or on the namespace
	OtherInjector    Code = "other-injector"    // only Istio's labels ask, and another injector listens to them
	NeverSelected    Code = "never-selector"    // neverInjectSelector matches
	PolicySaysNo     Code = "policy"            // autoInject is not "enabled"
	OtherSystem      Code = "other-system"      // not a Linux pod
	OtherMesh        Code = "other-mesh"        // another mesh's proxy is there
	OtherTemplate    Code = "other-template"    // inject.istio.io/templates asks for another one
	NothingToDo      Code = "nothing-to-do"     // no proxy, no capture, no order is asked for
	Injected         Code = "injected"          // it is not left as it is
	BadAnnotation    Code = "bad-annotation"    // refused: a value cannot be used
	PodSecurity      Code = "pod-security"      // refused: the namespace would refuse the result
	NoMechanism      Code = "no-mechanism"      // refused: the order asked for cannot be kept
	BadGraph         Code = "bad-graph"         // refused: the order asked for has no sense
	BadOverride      Code = "bad-override"      // refused: a user's own container of our name cannot be used
	PortTaken        Code = "port-taken"        // refused: a port of the mesh is used for something else
	VolumeTaken      Code = "volume-taken"      // refused: likewise the name of a volume
	MountTaken       Code = "mount-taken"       // refused: likewise a directory
)

// A Reason is why a pod is injected, or not.
type Reason struct {
	Code     Code   `json:"code"`
	Sentence string `json:"sentence"`
}

func because(code Code, format string, args ...any) Reason {
	return Reason{code, fmt.Sprintf(format, args...)}
}

// A Refusal is a pod that cannot be injected and must not run without: its author has
// asked for something that cannot be had.
type Refusal struct {
	Reason
	Hint string // what would be right
}

func (r *Refusal) Error() string { return r.Sentence }

func refuse(code Code, hint, format string, args ...any) error {
	return &Refusal{because(code, format, args...), hint}
}
