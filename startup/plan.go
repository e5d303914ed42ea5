package startup

import (
	"slices"
	"time"
)

// A Plan contains the containers of a pod and the edges between them.
type Plan struct {
	Containers []Container `json:"containers"` // in the order of the pod's lists, init containers first
	Edges      []Edge      `json:"edges"`
}

// A Container holds the properties of a container on which the plan depends.
type Container struct {
	Name    string  `json:"name"`
	Kind    Kind    `json:"kind,omitempty"`
	Restart Restart `json:"restart,omitempty"`
	Health  Health  `json:"health,omitempty"` // the method by which it reports that it is healthy

	// HealthNeeds names the containers without which this one never becomes healthy, because its probe or hook
	// checks them too. For example, a proxy's readiness check that includes the application needs the
	// application; one that includes only the outbound path does not.
	HealthNeeds []string `json:"healthNeeds,omitempty"`

	// StopsAtOnce means that nothing delays the stop of this container for those that wait for it at their start, although a
	// gate makes them wait: it has no gate itself, because it reports its own health, and no preStop hook that waits.
	// Another mesh's proxy is an example. It has no meaning for a native sidecar, which the kubelet stops last.
	StopsAtOnce bool `json:"stopsAtOnce,omitempty"`

	// Outlives names containers for whose open sockets a preStop hook of this one waits when the pod stops, because nothing
	// else shows that they still run. It has no meaning for a native sidecar.
	Outlives []string `json:"outlives,omitempty"`

	// Named means that the container waits only by edges that name it, and not by a wildcard. An example is a
	// proxy that serves the other containers.
	Named bool `json:"-"`
}

// Kind is the kind of a container. It follows from the list in the pod's spec and the restart policy.
type Kind string

const (
	Plain   Kind = ""        // a regular container: one of spec.containers
	Init    Kind = "init"    // an init container that must complete
	Sidecar Kind = "sidecar" // an init container with restartPolicy: Always (a native sidecar)
)

// Restart is the policy by which the kubelet restarts a container that has ended.
type Restart string

const (
	Always    Restart = ""
	OnFailure Restart = "on-failure"
	Never     Restart = "never"
)

// Health is the method by which a container reports that it is healthy.
type Health string

const (
	NoHealth       Health = ""
	StartupProbe   Health = "startup-probe"
	ReadinessProbe Health = "readiness-probe"
	PostStart      Health = "post-start" // a hook that returns when the container is healthy
	Report         Health = "report"     // the container, or its wrapper, publishes its state
)

// Condition is the state that a dependency must have reached, in the terms of Docker Compose.
type Condition string

const (
	Started   Condition = "started"   // its command runs
	Healthy   Condition = "healthy"   // it has reported that it is healthy; see [Health]
	Completed Condition = "completed" // it ended with exit code 0
)

// An Edge requires that the container To does not run before the container From has reached the condition After.
//
// This applies to every start of To, not only to the first. When the pod stops, To stops before From. From or To
// may be [Everything].
type Edge struct {
	From  string    `json:"from"`
	To    string    `json:"to"`
	After Condition `json:"after"`

	// Optional means that To may run if From does not exist or has failed.
	Optional bool `json:"optional,omitempty"`

	// Timeout is the maximum time for which To waits; 0 means no limit. OnTimeout is the reaction
	// after that time.
	Timeout   time.Duration `json:"timeout,omitempty"`
	OnTimeout OnTimeout     `json:"onTimeout,omitempty"`

	// OnRestart is the reaction of To to a restart of From while To runs.
	OnRestart OnRestart `json:"onRestart,omitempty"`

	// By is the mechanism that enforces the edge; empty if none is chosen yet.
	By Mechanism `json:"by,omitempty"`
}

// Everything is a wildcard for From or To of an [Edge]. [Plan.Expand] defines which containers it includes.
const Everything = "*"

// OnTimeout is the reaction to a wait that has timed out.
type OnTimeout string

const (
	Fail     OnTimeout = ""         // do not run; the container ends with an error
	Continue OnTimeout = "continue" // run anyway
)

// OnRestart is the reaction of To to a restart of From.
type OnRestart string

const (
	Ignore    OnRestart = ""
	Notify    OnRestart = "notify"  // notify the dependent
	RestartTo OnRestart = "restart" // restart the dependent
)

// Kubernetes is a minor version of Kubernetes 1: 34 means 1.34. The zero value means the newest version
// that this package supports.
type Kubernetes int

const newest Kubernetes = 36

func (k Kubernetes) orNewest() Kubernetes {
	if k == 0 {
		return newest
	}
	return k
}

// Find returns the first container of that name and its index in p.Containers. The index is -1 if there is none.
func (p Plan) Find(name string) (Container, int) {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return Container{}, -1
	}
	return p.Containers[i], i
}

// inInitList reports whether the container is one of spec.initContainers.
func (c Container) inInitList() bool { return c.Kind == Init || c.Kind == Sidecar }

// LeavesFirst reports whether the container may end before those that a gate makes wait for it.
func (c Container) LeavesFirst() bool { return c.StopsAtOnce && c.Kind != Sidecar }

// completes reports whether the container can end for good. That is impossible if the kubelet always restarts it:
// even an exit with code 0 leads to a restart.
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

// holdsNext reports whether the kubelet waits until c is healthy before it starts the next container in the
// list. Otherwise it continues as soon as c runs (or, for a regular init container, has completed).
func (c Container) holdsNext() bool {
	return c.Health == PostStart || c.Kind == Sidecar && c.Health == StartupProbe
}
