// Package podstart defines what was read from a pod about the start of its containers: the requested order, every
// ordering that the pod already has, and the facts about containers that decide which mechanisms can be used.
//
// Package podspec reads a pod into a [Reading], and package mechanism makes choices for a Reading. So neither of
// them imports the other.
package podstart

import (
	"time"

	"outrider.dev/startup"
)

// A Reading holds the facts about the start of a pod that were read from it.
type Reading struct {
	Containers []startup.Container
	Facts      map[string]Fact   // by container
	Requested  []startup.Edge    // edges requested by annotations; they may contain wildcards
	Found      []Found           // orderings that the pod already has
	Start      startup.Mechanism // the annotation outrider.dev/start
	Native     bool              // the annotation sidecar.istio.io/nativeSidecar: "true", which takes precedence over a gate
	Expected   []string          // containers for which others wait and which injection has not added yet
	Notes      []string
	Injected   bool   // the pod is injected: what is requested has been written as far as possible
	Excluded   string // the reason why injection will not write what is requested; empty if it will write it

	// Avoid lists mechanisms that mechanism.Choose may use only on request. It is not read from the pod, but set
	// by callers.
	Avoid []startup.Mechanism

	// Node means that the nodes add the gates, which can wrap any command. It is read from the pod, or set by a
	// caller for a pod that will be injected so.
	Node bool

	// Unknown maps a container to the reason why its command could not be found in its image. It is nil if images
	// were not looked up.
	Unknown map[string]string
}

// A Fact holds the properties of a container that decide which mechanisms can be used.
type Fact struct {
	Command bool // the pod sets the command, so a gate can wrap it
	First   bool // the command runs only as process 1
	Proxy   bool // it is a mesh's proxy, which can be moved and reports its own readiness
	Probed  bool // it has a probe, which a hook or a gate can run
	Starts  bool // it has a startup probe
	Hooked  bool // it has a postStart hook, so it cannot get one that waits
}

// A Found is an ordering that the pod already has.
type Found struct {
	Container   string            `json:"container"` // the container in which it was found
	Mechanism   startup.Mechanism `json:"mechanism"`
	By          string            `json:"by"`              // the program or mesh: "pilot-agent wait", "Tekton", "sleep"
	Edges       []startup.Edge    `json:"edges,omitempty"` // the edges that the ordering keeps; empty if they are unknown
	Evidence    Evidence          `json:"evidence"`
	Replaceable bool              `json:"replaceable"` // podspec.Without can remove it

	Cut    [2]int        `json:"-"` // offsets of the statement in the script, if the ordering is part of a script
	Unwrap int           `json:"-"` // index of the real command, if the ordering is a wrapper; 0 if there is none
	Lasts  time.Duration `json:"-"` // duration of a sleep, or of a loop that gives up
}

// Evidence is the field of the pod in which an ordering was found, and its text.
type Evidence struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

func (e Evidence) String() string { return e.Field + ": " + e.Text }
