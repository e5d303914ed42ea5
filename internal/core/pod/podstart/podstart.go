// Package podstart describes how the containers of one pod start, as it was read: what is requested, every
// ordering that the pod has already, and the facts about containers on which mechanisms depend.
//
// Package podspec reads a pod into a [Reading], and package mechanism chooses for it. Both know only the values
// here, so neither needs the other.
package podstart

import (
	"time"

	"outrider.dev/startup"
)

// A Reading describes the start-up of a pod.
type Reading struct {
	Containers []startup.Container
	Facts      map[string]Fact   // by container
	Requested  []startup.Edge    // by annotation, stars included
	Found      []Found           // orderings that the pod already has
	Start      startup.Mechanism // the annotation outrider.dev/start
	Native     bool              // the annotation sidecar.istio.io/nativeSidecar: "true", which takes precedence over a gate
	Expected   []string          // containers that others wait for, and that injection has not added yet
	Notes      []string
	Injected   bool   // injection has already written what is requested, as well as it could
	Excluded   string // why injection will not write what is requested; empty: it will

	// Avoid lists mechanisms that mechanism.Choose must not pick by itself. Callers set it; it is not read from the
	// pod.
	Avoid []startup.Mechanism

	// Node says that the pod's nodes add gates, to any command: they do so already, or the caller sets it
	// for a pod that will be injected in this way.
	Node bool

	// Unknown says for a container why its command is not known from its image either. Nil: the images were
	// not looked up.
	Unknown map[string]string
}

// A Fact describes a container, as far as mechanisms depend on it.
type Fact struct {
	Command bool // the command is in the pod, so that it can be wrapped
	First   bool // the command runs only as process 1
	Proxy   bool // a mesh's proxy: it can be moved, and reports its own readiness
	Probed  bool // it has a probe, which a hook or a gate can run
	Starts  bool // it has a startup probe
	Hooked  bool // it has a postStart hook, which leaves no place for one that waits
}

// Found is an ordering that the pod already has, from any source.
type Found struct {
	Container   string            `json:"container"` // the container in which it was found
	Mechanism   startup.Mechanism `json:"mechanism"`
	By          string            `json:"by"`              // the program or mesh: "pilot-agent wait", "Tekton", "sleep"
	Edges       []startup.Edge    `json:"edges,omitempty"` // empty if it is unknown what it waits for
	Evidence    Evidence          `json:"evidence"`
	Replaceable bool              `json:"replaceable"` // podspec.Without can take it out

	Cut    [2]int        `json:"-"` // position in the script, if it is part of one
	Unwrap int           `json:"-"` // index of the real command, if it is a wrapper
	Lasts  time.Duration `json:"-"` // duration of a sleep, or of a loop that gives up
}

// Evidence shows where in the pod an ordering was seen.
type Evidence struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

func (e Evidence) String() string { return e.Field + ": " + e.Text }
