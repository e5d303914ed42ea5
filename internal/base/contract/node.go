package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Names by which a node and its pods find each other, where outrider-node has installed its
// plugins of the network (CNI) and of the container runtime (NRI).
const (
	// NodeLabel is on a node, with the value NodeInstalled, from the plugins' first moment until they
	// are removed. Pods that need them select it.
	NodeLabel     = Prefix + "node"
	NodeInstalled = "installed"
	// NodeTaint is on a node whose plugins have served and do not any more; its effect is NoSchedule.
	NodeTaint = Prefix + "node-not-serving"
	// NodeValidator is on a node with NodeLabel: whether its runtime creates a container without the plugins
	// that the pod requires.
	NodeValidator = Prefix + "node-validator"
	// NodeAnnotation has a pod's [NodeWork]: injection writes it, the plugins do it.
	NodeAnnotation = Prefix + "node-work"
	// NodePlugin is the name under which outrider-node registers with the runtime.
	NodePlugin = "outrider"
	// RequiredPlugins is NRI's annotation of a pod: a YAML list of plugins without which a runtime
	// whose validator is on creates no container of the pod.
	RequiredPlugins = "required-plugins.noderesource.dev"
)

// Values of NodeValidator.
const (
	ValidatorOn      = "on"
	ValidatorOff     = "off"
	ValidatorRestart = "restart" // it is on in the configuration, and the runtime has not restarted since
	ValidatorUnknown = "unknown" // the configuration cannot be read
)

// HasNode reports whether a node with these labels runs outrider-node, and whether it matters: a node
// of another system than Linux does not.
func HasNode(labels map[string]string) (has, matters bool) {
	system := labels["kubernetes.io/os"]
	return labels[NodeLabel] == NodeInstalled, system == "" || system == "linux"
}

// Values of the annotation Init: who captures a pod's connections, and brings the gate.
const (
	InitAuto      = "auto"         // the best that the cluster's nodes offer
	InitByNode    = "node"         // the node's plugins
	InitVolume    = "image-volume" // an init container captures; the gate comes by a volume of its image
	InitContained = "container"    // an init container does both
	InitNone      = "none"         // the proxy's own container does both
)

// NodeWork describes what a node does for one pod before the pod's containers run.
type NodeWork struct {
	// Capture are flags of "outrider-agent capture", for the pod's network namespace; none:
	// nothing is captured. Only flags of the intent are allowed (capture.Flags).
	Capture []string `json:"capture,omitempty"`
	// Containers have the agent and the states of the pod's containers mounted, by name. The
	// values are arguments of the agent as [Gate.Args] writes them, up to "--": the container's
	// own arguments follow. Without any the container's arguments stay as they are.
	Containers map[string][]string `json:"containers,omitempty"`
}

// maxNodeWork bounds the text, as all annotations of a pod together are bounded by the API server.
const maxNodeWork = 256 << 10

// String returns the annotation's value. [ParseNodeWork] reads it back.
func (w NodeWork) String() string {
	text, _ := json.Marshal(w) // strings alone
	return string(text)
}

// ParseNodeWork reads an annotation's value. Each gate is one that the agent would accept, but
// for its command.
func ParseNodeWork(text string) (NodeWork, error) {
	var w NodeWork
	if len(text) > maxNodeWork {
		return w, fmt.Errorf("annotation %s has %d bytes, and at most %d are possible", NodeAnnotation, len(text), maxNodeWork)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&w)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more after the object")
		}
	}
	if err != nil {
		return NodeWork{}, fmt.Errorf("annotation %s: %w; it is written by injection, as %s", NodeAnnotation, err, NodeWork{Capture: []string{"-p", "15001"}, Containers: map[string][]string{"app": {gateCommand, "--name", "app", "--"}}})
	}
	for name, args := range w.Containers { // any order: one error of several
		if len(args) == 0 {
			continue
		}
		if g, ok := ParseGate(args); !ok || args[len(args)-1] != "--" || len(g.Command) > 0 {
			return NodeWork{}, fmt.Errorf("annotation %s: %q of container %s is no gate without a command, as %q", NodeAnnotation, args, name, Gate{Name: name}.Args())
		}
	}
	return w, nil
}

// Where outrider-node keeps what is on the node. Each is at the same path in its container.
const (
	NodeAgentsDir = "/opt/outrider"           // the agent, in a directory for each digest
	NodeStatesDir = "/run/outrider/pods"      // the states of pods, by sandbox
	NodeRunDir    = "/run/outrider/node"      // the daemon's socket and its lock
	NodeSocket    = NodeRunDir + "/node.sock" // where the CNI plugin asks the daemon
	NodeGuard     = NodePlugin + "-guard"     // the plugin that refuses what the daemon has not adjusted
)

// RunsFirst reports whether a program runs only as process 1, or else does something else: systemd,
// and s6-overlay's, which is called /init. Behind a gate it is not process 1.
func RunsFirst(program string) bool {
	name := program[strings.LastIndexByte(program, '/')+1:]
	return name == "init" || name == "systemd"
}
