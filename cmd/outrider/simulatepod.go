package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// A running is an object as it will run.
type running struct {
	podspec.Object
	Kubernetes string         `json:"kubernetes"`
	Plan       startup.Plan   `json:"plan"`
	Added      []string       `json:"added,omitempty"`    // containers that injection has yet to add
	Written    []startup.Edge `json:"written,omitempty"`  // edges that injection has yet to write
	Supposed   []startup.Edge `json:"supposed,omitempty"` // edges that nobody asks for
	run        podspec.Run
	life       kubelet.Pod
}

// readRunning returns the pods of all files as they will run.
func readRunning(cmd *cobra.Command, files []string, kube kubeVersion) ([]running, error) {
	if kube < kubelet.Oldest || kube > kubelet.Newest {
		return nil, &cli.UsageError{Err: fmt.Errorf("--kube=%s: the kubelet's rules are known from 1.%d to 1.%d", &kube, kubelet.Oldest, kubelet.Newest)}
	}
	var out []running
	for _, file := range files {
		objects, err := readObjects(cmd, file)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		for _, o := range objects {
			r, err := newRunning(o, startup.Kubernetes(kube))
			if err != nil {
				return nil, &cli.UsageError{Err: err}
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// bearable are errors of a plan that do not keep its pod from being run: what goes
// wrong then is what the simulator and the verifier show.
var bearable = []startup.Code{startup.MechanismUnfit, startup.CannotBeKept, startup.NeverHealthy, startup.NeverCompletes, startup.SelfWaitingProbe}

// bearing is the plan of an object that can be run, whether or not its plan is kept then.
func bearing(o podspec.Object, on startup.Kubernetes) (planned, error) {
	p, err := newPlanned(o, on, false)
	if err != nil {
		return p, err
	}
	p.Findings = slices.DeleteFunc(p.Findings, func(f startup.Finding) bool { return slices.Contains(bearable, f.Code) })
	return p, broken([]planned{p})
}

func newRunning(o podspec.Object, on startup.Kubernetes) (running, error) {
	p, err := bearing(o, on)
	if err != nil {
		return running{}, err
	}
	run, err := podspec.AsItRuns(&o.Pod, on)
	if err != nil {
		return running{}, fmt.Errorf("%s: document %d: %s: %w", o.File, o.Document, o, err)
	}
	return running{Object: o, Kubernetes: p.Kubernetes, Plan: run.Plan, Added: run.Added, Written: run.Written, Supposed: run.Supposed,
		run: run, life: podspec.Lifecycle(run.Pod)}, nil
}

// names are the containers, in the order of the pod.
func (r running) names() []string {
	var out []string
	for _, c := range r.Plan.Containers {
		out = append(out, c.Name)
	}
	return out
}

// sentences are the plan in words: edges that differ in who waits only are one.
func (r running) sentences() []string {
	var out []string
	index := map[string]int{}
	var who [][]string
	var rest []string
	for _, e := range r.Plan.Edges {
		text := strings.TrimPrefix(e.String(), e.To) + r.remark(e)
		i, ok := index[text]
		if !ok {
			i = len(rest)
			index[text], rest, who = i, append(rest, text), append(who, nil)
		}
		who[i] = append(who[i], e.To)
	}
	for i, text := range rest {
		out = append(out, strings.Join(who[i], ", ")+text)
	}
	for _, n := range r.Added {
		out = append(out, n+" is not in the pod yet: a bare container stands for it")
	}
	return out
}

// remark is what the edge itself does not say.
func (r running) remark(e startup.Edge) string {
	switch {
	case slices.Contains(r.Supposed, e):
		return " (supposed: nobody asks for it, and nothing keeps it)"
	case e.By == "":
		return " (nothing keeps it)"
	case slices.Contains(r.Written, e):
		return " (to be written by injection)"
	}
	return ""
}

// head prints what the object is.
func (p *printer) head(r running) {
	p.line("%s", p.paint(bold, r.Object.String())+p.paint(faint, fmt.Sprintf("  %s, document %d, Kubernetes %s", r.File, r.Document, r.Kubernetes)))
	for _, s := range r.sentences() {
		p.line("  %s", s)
	}
	if len(r.Plan.Edges) == 0 {
		p.line("  %s", noEdges)
	}
}

const noEdges = "nobody waits for anybody: there is no plan that could be broken"

// plural is "1 edge", "2 edges".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
