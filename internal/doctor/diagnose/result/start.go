package result

import "time"

// A Start has the time that a pod took to get ready, and its phases. A phase is left out if the evidence does not
// show both its beginning and its end, so the phases need not add up to the whole time.
type Start struct {
	State StartState `json:"state"`
	// Took is the time from the pod's creation until it was ready, or until the evidence was taken if it is not
	// ready. The zero value means not known.
	Took Elapsed `json:"took,omitzero"`
	// AtMost is set if containers restarted, so that the pod may have been ready before its last Ready condition.
	AtMost bool    `json:"atMost,omitempty"`
	Phases []Phase `json:"phases,omitempty"` // in order, without overlaps
}

// A StartState is the state of a pod with respect to its start.
type StartState string

// The states.
const (
	StartReady    StartState = "ready"
	StartNotReady StartState = "not ready"
	StartEnded    StartState = "ended" // all its containers have ended
	StartUnknown  StartState = "unknown"
)

// Elapsed is a measured duration: the true one lies between Time-Error and Time+Error.
type Elapsed struct {
	Time  time.Duration `json:"time"`
	Error time.Duration `json:"error"`
}

// Known reports whether the duration is known.
func (e Elapsed) Known() bool { return e != Elapsed{} }

// A PhaseName names a part of a pod's start.
type PhaseName string

// The phases, in the order in which they usually follow one another.
const (
	SchedulePhase PhaseName = "schedule" // until a node is found
	SandboxPhase  PhaseName = "sandbox"  // the pod's network and sandbox, and its volumes
	ImagePhase    PhaseName = "image"    // images are pulled
	InitPhase     PhaseName = "init"     // init containers run
	ProxyPhase    PhaseName = "proxy"    // the proxy starts, until it is ready
	GatePhase     PhaseName = "gate"     // applications wait for the proxy
	AppPhase      PhaseName = "app"      // applications start, until the pod is ready
)

// PhaseNames lists all phases in their usual order.
var PhaseNames = []PhaseName{SchedulePhase, SandboxPhase, ImagePhase, InitPhase, ProxyPhase, GatePhase, AppPhase}

// A Phase is a part of the start. From is the time since the pod's creation. If it is not known when the pod was
// scheduled, From is the time since the kubelet saw the pod.
type Phase struct {
	Name PhaseName     `json:"name"`
	From time.Duration `json:"from"`
	Took Elapsed       `json:"took"`
}
