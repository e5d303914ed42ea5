// Package scenario simulates and verifies the pods of manifests: it converts each to the pod,
// the plan and the behaviour that packages simulate and verify need.
//
// A [Subject] is a pod in the form in which it will run: with the containers and the order that
// injection will write into it. A [Behaviour] is the user's description of the containers. It is
// completed by assumptions, which are printed.
package scenario

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// A Subject is an object in the form in which its pod will run.
type Subject struct {
	podfile.Object
	Kubernetes string         `json:"kubernetes"`
	Plan       startup.Plan   `json:"plan"`
	Added      []string       `json:"added,omitempty"`    // containers that injection will add
	Written    []startup.Edge `json:"written,omitempty"`  // edges that injection will write
	Supposed   []startup.Edge `json:"supposed,omitempty"` // edges that are assumed, because an application should wait for its proxy

	// Unmodelled lists settings of the pod that the model of the kubelet does not implement. Stronger names
	// mechanisms that would keep more edges, or keep them in more cases, than those in the pod.
	Unmodelled []string `json:"unmodelled,omitempty"`
	Stronger   string   `json:"stronger,omitempty"`

	run     podrun.Run
	endless []string // containers that run on when the work of a pod that should complete is done
	pod     kubelet.Pod
	on      startup.Kubernetes
}

// NewSubject returns the subject of an object. It fails if the plan cannot work, for example because of a cycle, or
// if the model does not have the version of Kubernetes.
func NewSubject(o podfile.Object, on startup.Kubernetes) (Subject, error) {
	if on < kubelet.Oldest || on > kubelet.Newest {
		return Subject{}, fmt.Errorf("--kube=1.%d: the kubelet's rules are known from 1.%d to 1.%d", on, kubelet.Oldest, kubelet.Newest)
	}
	if err := plan.CheckRunnable(o, on); err != nil {
		return Subject{}, err
	}
	run, err := podrun.Of(&o.Pod, on)
	if err != nil {
		return Subject{}, fmt.Errorf("%s: %w", plan.Where(o), err)
	}
	var unmodelled []string
	for _, sentence := range podrun.Unmodelled(&o.Pod) {
		unmodelled = append(unmodelled, o.Field(sentence))
	}
	var endless []string
	for i := range run.Pod.Spec.Containers {
		if c := &run.Pod.Spec.Containers[i]; podspec.RunsOn(run.Pod, o.Kind, c) {
			endless = append(endless, c.Name)
		}
	}
	return Subject{Object: o, endless: endless, Unmodelled: unmodelled, Stronger: run.Stronger, Kubernetes: fmt.Sprintf("1.%d", on), Plan: run.Plan, Added: run.Added, Written: run.Written,
		Supposed: run.Supposed, run: run, pod: podrun.Lifecycle(run.Pod), on: on}, nil
}

// Where returns the object and its file, in the form that begins an error message.
func (s Subject) Where() string { return plan.Where(s.Object) }

// Names returns the names of the containers, in the order of the pod.
func (s Subject) Names() []string {
	var out []string
	for _, c := range s.Plan.Containers {
		out = append(out, c.Name)
	}
	return out
}

// Sentences describes the plan, and its differences to the pod in the file. Edges that differ only in the container
// that waits share one sentence.
func (s Subject) Sentences() []string {
	var rest []string // the part of each sentence after the waiting containers
	waiting := map[string][]string{}
	for _, e := range s.Plan.Edges {
		text := strings.TrimPrefix(e.String(), e.To) + s.remark(e)
		if waiting[text] == nil {
			rest = append(rest, text)
		}
		waiting[text] = append(waiting[text], e.To)
	}
	var out []string
	for _, text := range rest {
		out = append(out, strings.Join(waiting[text], ", ")+text)
	}
	for _, n := range s.Added {
		out = append(out, n+" is not in the pod yet: a bare container stands for it")
	}
	out = append(out, s.Unmodelled...)
	if s.Stronger != "" {
		out = append(out, "stronger: "+s.Stronger)
	}
	return out
}

// once returns the condition that is added to a verdict if injection has yet to write the order into the pod. If the
// pod runs without injection, it does not keep the order.
func (s Subject) once() string {
	if len(s.Written) == 0 && len(s.Added) == 0 {
		return ""
	}
	return " once the pod is injected"
}

// NoEdges is the verdict on a plan without edges.
const NoEdges = "no container waits for another: there is no plan that could be broken"

// remark returns an addition to the text of an edge: whether something keeps it, and whether it is assumed.
func (s Subject) remark(e startup.Edge) string {
	switch {
	case slices.Contains(s.Supposed, e):
		return " (assumed: the pod does not declare it, and nothing keeps it)"
	case e.By == "":
		return " (nothing keeps it)"
	case slices.Contains(s.Written, e):
		return " (to be written by injection)"
	}
	return ""
}
