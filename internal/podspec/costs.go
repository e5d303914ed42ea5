package podspec

import (
	"slices"

	"outrider.dev/startup"
)

// A Cost is what a way of ordering was measured to take, in seconds: from "the
// proxy is ready" to "the app starts", on a real kubelet.
type Cost struct {
	By       startup.Mechanism  `json:"-"`
	Released startup.Health     `json:"-"` // what releases the dependent, where that makes a difference
	On       startup.Kubernetes `json:"-"`
	Kubelet  string             `json:"kubelet"` // the version measured
	Min      float64            `json:"min"`
	Median   float64            `json:"median"`
	Max      float64            `json:"max"`
}

// CostSource says how the costs were found.
const CostSource = "measured on real kubelets, n=8 each, alternating, the proxy ready 0.1 s after its start"

// Costs are all that were measured.
// Source: reference/kubelet-rules.md, "What each way of ordering costs".
var Costs = []Cost{
	{startup.Gate, "", 34, "v1.34.4", 0.00, 0.00, 0.06},
	{startup.Gate, "", 36, "v1.36.3", 0.00, 0.01, 0.03},
	{startup.Native, startup.PostStart, 34, "v1.34.4", 0.89, 0.92, 0.97},
	{startup.Native, startup.PostStart, 36, "v1.36.3", 0.08, 0.10, 0.13},
	{startup.Native, startup.StartupProbe, 34, "v1.34.4", 1.86, 1.89, 1.92},
	{startup.Native, startup.StartupProbe, 36, "v1.36.3", 0.88, 0.89, 0.91},
	{startup.Hold, "", 34, "v1.34.4", 0.09, 0.11, 0.13},
	{startup.Hold, "", 36, "v1.36.3", 0.07, 0.08, 0.12},
}

// A PodCost is from "applied" to "the app runs", in seconds, n=8.
type PodCost struct {
	What             string
	Kubelet          string
	On               startup.Kubernetes
	Min, Median, Max float64
}

// PodCosts are what init containers cost, each of which runs only "true".
var PodCosts = []PodCost{
	{"no init container", "v1.34.4", 34, 0.63, 0.67, 0.74},
	{"no init container", "v1.36.3", 36, 0.65, 0.67, 0.71},
	{"one init container", "v1.34.4", 34, 0.90, 0.95, 1.94},
	{"one init container", "v1.36.3", 36, 0.97, 1.05, 1.12},
	{"two init containers", "v1.34.4", 34, 1.92, 1.97, 1.98},
	{"two init containers", "v1.36.3", 36, 1.84, 1.88, 2.86},
	{"no proxy at all", "v1.34.4", 34, 0.59, 0.66, 0.69},
	{"no proxy at all", "v1.36.3", 36, 0.63, 0.72, 0.82},
	{"gate without an init container", "v1.34.4", 34, 0.70, 0.74, 0.84},
	{"gate without an init container", "v1.36.3", 36, 0.79, 0.80, 0.87},
}

// podCostOf is what a kind of pod costs, on the oldest kubelet that was measured.
func podCostOf(what string) PodCost {
	i := slices.IndexFunc(PodCosts, func(c PodCost) bool { return c.What == what })
	if i < 0 {
		return PodCost{What: what}
	}
	return PodCosts[i]
}

// measured is the version whose measurements say most about another one: the
// newest that is not newer, else the oldest.
func measured(on startup.Kubernetes) startup.Kubernetes {
	if on == 0 || on >= 36 {
		return 36
	}
	return 34
}

// PodCostsOn are the costs of pods that say most about a version.
func PodCostsOn(on startup.Kubernetes) []PodCost {
	var out []PodCost
	for _, c := range PodCosts {
		if c.On == measured(on) {
			out = append(out, c)
		}
	}
	return out
}

func costOf(by startup.Mechanism, released startup.Health, on startup.Kubernetes) *Cost {
	for _, c := range Costs {
		if c.By == by && c.On == measured(on) && (c.Released == "" || c.Released == released) {
			return &c
		}
	}
	return nil
}
