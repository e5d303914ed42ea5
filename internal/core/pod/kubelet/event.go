package kubelet

import (
	"fmt"
	"time"
)

// An Event is an input of the machine: something that happens to the pod or its containers. An event that is
// impossible in the current state, such as the exit of a container that does not run, is ignored.
type Event struct {
	At        time.Duration `json:"at"` // time since the pod was created; a time in the past counts as now
	Kind      EventKind     `json:"kind"`
	Container string        `json:"container,omitempty"`
	OK        bool          `json:"ok,omitempty"`    // for Pulled, Started, HookReturned, ProbeAnswered, SandboxReady
	Code      int           `json:"code,omitempty"`  // exit code, for Exited
	Which     Which         `json:"which,omitempty"` // for HookReturned and ProbeAnswered
	Grace     time.Duration `json:"grace,omitempty"` // for Deleted; 0: the pod's own grace period
}

// EventKind is the kind of an event.
type EventKind string

const (
	Tick          EventKind = "tick"           // only time passed
	Added         EventKind = "added"          // the kubelet has received the pod and mounted its volumes
	SandboxReady  EventKind = "sandbox-ready"  // the sandbox is ready, or could not be made; answers CreateSandbox
	SandboxDied   EventKind = "sandbox-died"   // the node was rebooted: all containers are gone
	SandboxLost   EventKind = "sandbox-lost"   // only the process of the sandbox died
	Pulled        EventKind = "pulled"         // the image is there, or could not be pulled; answers Pull
	Started       EventKind = "started"        // the container started, or could not be started (StartError); answers Start
	HookReturned  EventKind = "hook-returned"  // answers RunHook
	ProbeAnswered EventKind = "probe-answered" // answers RunProbe
	Exited        EventKind = "exited"
	Deleted       EventKind = "deleted" // the pod was deleted in the API
)

// Which identifies a hook or a probe of a container.
type Which string

const (
	PostStart Which = "postStart"
	PreStop   Which = "preStop"
	Startup   Which = "startup"
	Liveness  Which = "liveness"
	Readiness Which = "readiness"
)

// An Action is an output of the machine: something that the kubelet does.
type Action struct {
	At        time.Duration
	Kind      ActionKind
	Container string
	Which     Which         // for RunHook and RunProbe
	Handler   Handler       // for RunProbe; in [State.Open] also for a preStop hook
	Timeout   time.Duration // for RunProbe: its timeout; for Stop: time until Kill; in [State.Open]: duration of a preStop hook that sleeps
	Status    Status        // for Publish
	Reason    string        // explanation for people
}

// ActionKind is the kind of an action.
type ActionKind string

const (
	CreateSandbox ActionKind = "create-sandbox"
	Pull          ActionKind = "pull" // make sure that the image is present
	Start         ActionKind = "start"
	RunHook       ActionKind = "run-hook"
	RunProbe      ActionKind = "run-probe"
	Stop          ActionKind = "stop"     // SIGTERM
	Kill          ActionKind = "kill"     // SIGKILL
	BackOff       ActionKind = "back-off" // a container is not started yet; Reason is the cause
	Publish       ActionKind = "publish"  // the pod's status in the API changed
	End           ActionKind = "end"      // nothing runs, and nothing will be started again
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

// Answer returns the event that answers an action at the given time. The parameter ok tells whether the action
// succeeded. The answer to Stop or Kill is the exit of the container: with code 0 if it stops by itself, with
// 137 if SIGKILL ends it. Answer returns false if the action has no answer.
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
