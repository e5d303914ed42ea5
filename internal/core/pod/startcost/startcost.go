// Package startcost contains the measured costs of the mechanisms: the delay that each causes in the start of a
// container, and the time in which pods start with and without a mesh. "make bench-cluster" measures the numbers;
// docs/kubelet.md explains how.
package startcost

import (
	"slices"

	"outrider.dev/startup"
)

// A Delay is the measured delay of a mechanism in seconds: from the time when the proxy is ready to the time when
// the app starts, on a real kubelet.
type Delay struct {
	By       startup.Mechanism  `json:"-"`
	Released startup.Health     `json:"-"` // the health report that lets the dependent container start; empty if that makes no difference
	On       startup.Kubernetes `json:"-"`
	Kubelet  string             `json:"kubelet"` // version of the measured kubelet
	Min      float64            `json:"min"`
	Median   float64            `json:"median"`
	Max      float64            `json:"max"`
}

// Source is a description of the measurements.
const Source = "measured on real kubelets, n=8 each, alternating, the proxy ready 0.1 s after its start"

// delays lists all measured delays.
var delays = []Delay{
	{startup.Gate, "", 34, "v1.34.4", 0.00, 0.00, 0.06},
	{startup.Gate, "", 36, "v1.36.3", 0.00, 0.01, 0.03},
	{startup.Native, startup.PostStart, 34, "v1.34.4", 0.89, 0.92, 0.97},
	{startup.Native, startup.PostStart, 36, "v1.36.3", 0.08, 0.10, 0.13},
	{startup.Native, startup.StartupProbe, 34, "v1.34.4", 1.86, 1.89, 1.92},
	{startup.Native, startup.StartupProbe, 36, "v1.36.3", 0.88, 0.89, 0.91},
	{startup.Hold, "", 34, "v1.34.4", 0.09, 0.11, 0.13},
	{startup.Hold, "", 36, "v1.36.3", 0.07, 0.08, 0.12},
}

// A Pod is the measured time in seconds in which a pod starts.
type Pod struct {
	What             string
	Kubelet          string
	On               startup.Kubernetes
	Min, Median, Max float64
}

// Pods contains the times of pods with init containers that only run "true": from the creation of the pod until
// the app runs, n=8.
var Pods = []Pod{
	{"no init container", "v1.34.4", 34, 0.63, 0.67, 0.74},
	{"no init container", "v1.36.3", 36, 0.65, 0.67, 0.71},
	{"one init container", "v1.34.4", 34, 0.90, 0.95, 1.94},
	{"one init container", "v1.36.3", 36, 0.97, 1.05, 1.12},
	{"two init containers", "v1.34.4", 34, 1.92, 1.97, 1.98},
	{"two init containers", "v1.36.3", 36, 1.84, 1.88, 2.86},
}

// MeshPods contains the times of pods with Outrider's images and a real Envoy: from the creation of the pod to
// the first request that the app answers. n=20, with the variants measured in turns. On v1.36.3 fewer variants
// were measured.
// Source: "make bench-cluster", docs/kubelet.md.
var MeshPods = []Pod{
	{noMesh, "v1.34.4", 34, 0.54, 0.64, 0.76},
	{gateAlone, "v1.34.4", 34, 0.94, 1.04, 1.52},
	{"parking alone", "v1.34.4", 34, 1.32, 1.40, 2.40},
	{"gate", "v1.34.4", 34, 1.32, 1.43, 2.76},
	{"hold", "v1.34.4", 34, 1.38, 1.47, 1.69},
	{"native, blocking postStart", "v1.34.4", 34, 2.10, 2.15, 3.15},
	{"native, startup probe", "v1.34.4", 34, 3.08, 3.15, 4.22},

	// In these variants the nodes add the gates (docs/node.md), with a containerd that has NRI. There, a pod
	// without a mesh takes about as long as in the rows above: 0.58, 0.66, 1.28 s (min, median, max).
	{"parking alone, by the node", "v1.34.4", 34, 0.79, 1.06, 2.67},
	{"gate, by the node", "v1.34.4", 34, 0.79, 1.05, 3.11},

	{noMesh, "v1.36.3", 36, 0.63, 0.67, 0.76},
	{"gate", "v1.36.3", 36, 1.42, 1.48, 1.71},
	{"hold", "v1.36.3", 36, 1.49, 1.58, 2.58},
	{"native, blocking postStart", "v1.36.3", 36, 1.44, 1.55, 1.68},
	{"parking alone, by the node", "v1.36.3", 36, 0.97, 1.07, 1.34},
	{"gate, by the node", "v1.36.3", 36, 1.02, 1.13, 1.34},
}

// Values of What that the code refers to.
const (
	noMesh    = "no mesh"
	gateAlone = "gate, init: none"
)

// OfRootStage returns the additional seconds that a pod takes to start if its proxy has a root stage, compared
// with a pod without a mesh. It also returns the version of the measured kubelet.
func OfRootStage() (more float64, kubelet string) {
	find := func(what string) Pod {
		return MeshPods[slices.IndexFunc(MeshPods, func(c Pod) bool { return c.What == what })]
	}
	c := find(gateAlone)
	return c.Median - find(noMesh).Median, c.Kubelet
}

// measured returns the version whose measurements apply to the given one: the newest measured version that is
// not newer than the given one, else the oldest.
func measured(on startup.Kubernetes) startup.Kubernetes {
	if on == 0 || on >= 36 {
		return 36
	}
	return 34
}

// On returns the costs that were measured on the version that applies to the given one.
func On(costs []Pod, on startup.Kubernetes) []Pod {
	return slices.DeleteFunc(slices.Clone(costs), func(c Pod) bool { return c.On != measured(on) })
}

// DelayOf returns the measured delay of a mechanism that applies to the given version; nil if there is none.
func DelayOf(by startup.Mechanism, released startup.Health, on startup.Kubernetes) *Delay {
	for _, c := range delays {
		if c.By == by && c.On == measured(on) && (c.Released == "" || c.Released == released) {
			return &c
		}
	}
	return nil
}
