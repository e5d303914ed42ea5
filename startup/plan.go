package startup

import (
	"slices"
	"time"
)

// A Plan lists the containers of a pod and which of them wait for which.
type Plan struct {
	Containers []Container `json:"containers"` // as in the pod: init containers first, each list in its order
	Edges      []Edge      `json:"edges"`
}

// A Container describes one container of the pod, as far as the plan depends on it.
type Container struct {
	Name    string  `json:"name"`
	Kind    Kind    `json:"kind,omitempty"`
	Restart Restart `json:"restart,omitempty"`
	Health  Health  `json:"health,omitempty"` // how it reports that it is healthy

	// HealthNeeds names the containers without which this one never becomes healthy, because its probe or
	// hook checks them too. A readiness check that covers the application needs the application; one that
	// covers only the outbound path does not.
	HealthNeeds []string `json:"healthNeeds,omitempty"`

	// Named containers wait only by an edge that names them, and not by a star. An example is a proxy that
	// serves the other containers.
	Named bool `json:"-"`
}

// Kind is the kind of a container, by its list in the pod's spec.
type Kind string

const (
	Plain   Kind = ""        // one of spec.containers
	Init    Kind = "init"    // an init container that must complete
	Sidecar Kind = "sidecar" // an init container with restartPolicy: Always (a native sidecar)
)

// Restart says when the kubelet restarts a container that has ended.
type Restart string

const (
	Always    Restart = ""
	OnFailure Restart = "on-failure"
	Never     Restart = "never"
)

// Health says how a container reports that it is healthy.
type Health string

const (
	NoHealth       Health = ""
	StartupProbe   Health = "startup-probe"
	ReadinessProbe Health = "readiness-probe"
	PostStart      Health = "post-start" // a hook that returns when the container is healthy
	Report         Health = "report"     // the container, or its wrapper, publishes its state
)

// Condition is the state that a dependency must have reached, in the words of Docker Compose.
type Condition string

const (
	Started   Condition = "started"   // its process runs
	Healthy   Condition = "healthy"   // it is healthy as its Health says; see [Health]
	Completed Condition = "completed" // it ended with exit code 0
)

// An Edge means that container To must not run before From has reached After.
//
// It holds at every start of To, not only at the first; and when the pod stops,
// To stops before From. Either name may be [Everything].
type Edge struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	After Condition `json:"after"`

	// Optional edges let To run where From is missing or has failed.
	Optional bool `json:"optional,omitempty"`

	// Timeout limits To's wait; 0 waits for ever. OnTimeout says what To does when the time is over.
	Timeout   time.Duration `json:"timeout,omitempty"`
	OnTimeout OnTimeout     `json:"onTimeout,omitempty"`

	// OnRestart says what To does when From restarts while To runs.
	OnRestart OnRestart `json:"onRestart,omitempty"`

	// By is the mechanism that enforces the edge; empty if none is chosen yet.
	By Mechanism `json:"by,omitempty"`
}

// Everything, as a name in an [Edge], stands for all containers that can take its place.
const Everything = "*"

// OnTimeout says what a dependent does when its wait has timed out.
type OnTimeout string

const (
	Fail     OnTimeout = ""         // do not run; the container ends with an error
	Continue OnTimeout = "continue" // run anyway
)

// OnRestart says what a dependent does when its dependency restarts.
type OnRestart string

const (
	Ignore    OnRestart = ""
	Notify    OnRestart = "notify"  // notify the dependent
	RestartTo OnRestart = "restart" // restart the dependent
)

// Kubernetes is a minor version: 34 is Kubernetes 1.34. The zero value means the newest version that this
// package supports.
type Kubernetes int

const newest Kubernetes = 36

func (k Kubernetes) orNewest() Kubernetes {
	if k == 0 {
		return newest
	}
	return k
}

// Find returns the container of that name and its index in p.Containers. Of two with one name it returns the
// first. The index is -1 if there is none.
func (p Plan) Find(name string) (Container, int) {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return Container{}, -1
	}
	return p.Containers[i], i
}

// inInitList reports whether the container is one of spec.initContainers.
func (c Container) inInitList() bool { return c.Kind == Init || c.Kind == Sidecar }

// completes reports whether the container can end for good. A container that the kubelet always restarts
// cannot: even an exit with code 0 begins a crash loop.
func (c Container) completes() bool {
	switch c.Kind {
	case Init:
		return true
	case Sidecar:
		return false
	default:
		return c.Restart == OnFailure || c.Restart == Never
	}
}

// holdsNext reports whether the kubelet starts the next container of the pod's list only when c is healthy.
// After any other container it goes on as soon as that one runs.
func (c Container) holdsNext() bool {
	return c.Health == PostStart || c.Kind == Sidecar && c.Health == StartupProbe
}
