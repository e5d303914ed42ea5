package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Names by which a node and its pods find each other when outrider-node has installed its network plugin (CNI)
// and its plugin for the container runtime (NRI).
const (
	// NodeLabel is set on a node, with the value NodeInstalled, from the moment the plugins are installed
	// until they are removed. Pods that need the plugins select it.
	NodeLabel     = Prefix + "node"
	NodeInstalled = "installed"
	// NodeTaint is set on a node whose plugins have stopped serving. Its effect is NoSchedule.
	NodeTaint = Prefix + "node-not-serving"
	// NodeValidator is set on a node with NodeLabel. It says whether the runtime creates a container
	// without the plugins that its pod requires.
	NodeValidator = Prefix + "node-validator"
	// NodeAnnotation contains a pod's [NodeWork]. Injection writes it; the plugins carry it out.
	NodeAnnotation = Prefix + "node-work"
	// NodePlugin is the name under which outrider-node registers with the runtime.
	NodePlugin = "outrider"
	// RequiredPlugins is an annotation of NRI on a pod: a YAML list of plugins. A runtime whose validator
	// is on creates no container of the pod while one of them is missing.
	RequiredPlugins = "required-plugins.noderesource.dev"
)

// Values of NodeValidator.
const (
	ValidatorOn      = "on"
	ValidatorOff     = "off"
	ValidatorRestart = "restart" // on in the configuration, but the runtime has not restarted since
	ValidatorUnknown = "unknown" // the configuration cannot be read
)

// HasNode reports whether a node with these labels runs outrider-node, and whether that matters. It matters
// only for Linux nodes.
func HasNode(labels map[string]string) (has, matters bool) {
	system := labels["kubernetes.io/os"]
	return labels[NodeLabel] == NodeInstalled, system == "" || system == "linux"
}

// Values of the annotation Init: what captures a pod's connections, and what provides the gate's binary.
const (
	InitAuto      = "auto"         // the best method that the cluster's nodes offer
	InitByNode    = "node"         // the node's plugins
	InitVolume    = "image-volume" // an init container captures; the gate comes from a volume of its image
	InitContained = "container"    // an init container does both
	InitNone      = "none"         // the proxy's own container does both
)

// NodeWork describes what a node does for one pod before the pod's containers run.
type NodeWork struct {
	// Capture contains flags of "outrider-agent capture" for the pod's network namespace; if it is empty,
	// nothing is captured. Only flags that describe the intent are allowed (capture.Flags).
	Capture []string `json:"capture,omitempty"`
	// Containers lists by name the containers into which the agent and the states of the pod are mounted.
	// The values are the agent's arguments as [Gate.Args] writes them, up to "--"; the container's own
	// arguments follow. If the value is empty, the container's arguments do not change.
	Containers map[string][]string `json:"containers,omitempty"`
}

// maxNodeWork bounds the length of the annotation, because the API server bounds the size of all annotations
// of a pod together.
const maxNodeWork = 256 << 10

// String returns the annotation's value. [ParseNodeWork] parses it.
func (w NodeWork) String() string {
	text, _ := json.Marshal(w) // marshalling cannot fail: there are only strings
	return string(text)
}

// ParseNodeWork parses an annotation's value, which must be in the form that [NodeWork.String] writes, except for white
// space: a node must not carry out less than the pod asks for. Each gate must be one that the agent would accept, except for
// its missing command.
func ParseNodeWork(text string) (NodeWork, error) {
	var w NodeWork
	if len(text) > maxNodeWork {
		return w, fmt.Errorf("annotation %s has %d bytes, and at most %d are possible", NodeAnnotation, len(text), maxNodeWork)
	}
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		var compact bytes.Buffer
		_ = json.Compact(&compact, []byte(text)) // it is valid
		if compact.String() != w.String() {      // unknown or repeated fields, null, another order
			err = fmt.Errorf("of it only %s is understood", w)
		}
	}
	if err != nil {
		return NodeWork{}, fmt.Errorf("annotation %s: %w; it is written by injection, as %s", NodeAnnotation, err, NodeWork{Capture: []string{"-p", "15001"}, Containers: map[string][]string{"app": {gateCommand, "--name", "app", "--"}}})
	}
	for name, args := range w.Containers { // any order: any of several errors will do
		if len(args) == 0 {
			continue
		}
		if g, ok := ParseGate(args); !ok || args[len(args)-1] != "--" || len(g.Command) > 0 {
			return NodeWork{}, fmt.Errorf("annotation %s: %q of container %s is no gate without a command, as %q", NodeAnnotation, args, name, Gate{Name: name}.Args())
		}
	}
	return w, nil
}

// Paths of outrider-node's files on the node. They are the same in its container.
const (
	NodeAgentsDir = "/opt/outrider"           // the agent, with a directory for each digest
	NodeStatesDir = "/run/outrider/pods"      // the states of pods, by sandbox
	NodeRunDir    = "/run/outrider/node"      // the daemon's socket and its lock
	NodeSocket    = NodeRunDir + "/node.sock" // where the CNI plugin asks the daemon
	NodeGuard     = NodePlugin + "-guard"     // the plugin that refuses containers that the daemon has not adjusted
)

// RunsFirst reports whether a program works only as process 1: systemd, and the program of s6-overlay,
// which is called /init. Behind a gate it would not be process 1.
func RunsFirst(program string) bool {
	name := program[strings.LastIndexByte(program, '/')+1:]
	return name == "init" || name == "systemd"
}
