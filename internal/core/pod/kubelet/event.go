package kubelet

import (
	"fmt"
	"time"
)

// An Event is something that happened outside the kubelet's own rules. One that
// cannot happen now (the exit of a container that does not run) is ignored.
type Event struct {
	At        time.Duration `json:"at"` // since the pod was made; one that lies in the past is taken for now
	Kind      EventKind     `json:"kind"`
	Container string        `json:"container,omitempty"`
	OK        bool          `json:"ok,omitempty"`    // of Pulled, Started, HookReturned, ProbeAnswered, SandboxReady
	Code      int           `json:"code,omitempty"`  // exit code, of Exited
	Which     Which         `json:"which,omitempty"` // of HookReturned and ProbeAnswered
	Grace     time.Duration `json:"grace,omitempty"` // of Deleted; 0 means the pod's own
}

// EventKind names what happened.
type EventKind string

const (
	Tick          EventKind = "tick"           // time passed, nothing else
	Added         EventKind = "added"          // the kubelet was given the pod, and has its volumes
	SandboxReady  EventKind = "sandbox-ready"  // or failed; answers CreateSandbox
	SandboxDied   EventKind = "sandbox-died"   // the node was rebooted: all containers are gone
	SandboxLost   EventKind = "sandbox-lost"   // only the sandbox's own process died
	Pulled        EventKind = "pulled"         // or failed; answers Pull
	Started       EventKind = "started"        // or could not be (StartError); answers Start
	HookReturned  EventKind = "hook-returned"  // answers RunHook
	ProbeAnswered EventKind = "probe-answered" // answers RunProbe
	Exited        EventKind = "exited"
	Deleted       EventKind = "deleted" // by the API: the pod is to go
)

// Which names a hook or a probe.
type Which string

const (
	PostStart Which = "postStart"
	PreStop   Which = "preStop"
	Startup   Which = "startup"
	Liveness  Which = "liveness"
	Readiness Which = "readiness"
)

// An Action is something that the kubelet does.
type Action struct {
	At        time.Duration
	Kind      ActionKind
	Container string
	Which     Which         // of RunHook and RunProbe
	Handler   Handler       // of RunProbe; in [State.Open] also of a preStop
	Timeout   time.Duration // of RunProbe; of Stop: when Kill will follow; in [State.Open] how long a preStop sleeps
	Status    Status        // of Publish
	Reason    string        // for people
}

// ActionKind names what is done.
type ActionKind string

const (
	CreateSandbox ActionKind = "create-sandbox"
	Pull          ActionKind = "pull" // make sure that the image is there
	Start         ActionKind = "start"
	RunHook       ActionKind = "run-hook"
	RunProbe      ActionKind = "run-probe"
	Stop          ActionKind = "stop"     // SIGTERM
	Kill          ActionKind = "kill"     // SIGKILL
	BackOff       ActionKind = "back-off" // a container is not started yet, because of Reason
	Publish       ActionKind = "publish"  // the pod's status in the API changed
	End           ActionKind = "end"      // nothing runs and nothing will
)

func (a Action) String() string {
	s := fmt.Sprintf("%s %s %s", a.At, a.Kind, a.Container)
	if a.Which != "" {
		s += " " + string(a.Which)
	}
	if a.Reason != "" {
		s += " (" + a.Reason + ")"
	}
	return s
}

// Answer is the event that answers an action at that time: that it
// worked, or that it did not. A container that gets a stop signal ends, well or by
// SIGKILL. It is false for an action that has no answer.
func (a Action) Answer(at time.Duration, ok bool) (Event, bool) {
	kind, answered := answers[a.Kind]
	e := Event{At: at, Kind: kind, Container: a.Container, OK: ok, Which: a.Which}
	if a.Kind == Kill || a.Kind == Stop && !ok {
		e.Code = 137
	}
	return e, answered
}

var answers = map[ActionKind]EventKind{
	CreateSandbox: SandboxReady,
	Pull:          Pulled,
	Start:         Started,
	RunHook:       HookReturned,
	RunProbe:      ProbeAnswered,
	Stop:          Exited,
	Kill:          Exited,
}
