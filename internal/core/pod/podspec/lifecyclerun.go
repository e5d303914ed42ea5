package podspec

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// A Run is a pod as it will run: with the containers that injection has yet to
// add, and with the order that it requests written into it.
type Run struct {
	Pod  *corev1.Pod
	Plan startup.Plan // without stars; By is empty where nothing keeps an edge

	Added    []string       // containers that are not in the pod yet; a bare one stands for each
	Written  []startup.Edge // edges that were requested, and that the pod did not keep yet
	Supposed []startup.Edge // not requested: an app should wait for its proxy

	Stronger string // what would keep more, in one sentence

	Facts  map[string]Fact          // by container
	Sleeps map[string]time.Duration // by container: before its command begins, or until its polls end
	Lasts  map[string]time.Duration // by container: its command, if that ends with a sleep
	Hooks  map[string]Hook          // by container: what its postStart does

	// EndsWith are by container those after whose end it ends too, with status 0.
	EndsWith map[string][]string
}

// A Hook is what a postStart waits for.
type Hook struct {
	Polls   string        // the container that it probes; empty: it does not wait
	Timeout time.Duration // 0: it waits for ever
	GoesOn  bool          // after that it succeeds without an answer
	Once    bool          // it probes once, and fails without an answer
}

// AsItRuns is pod as it will run on a kubelet of that version: the mechanism of
// each edge is the one that is in the pod, else the one that [Choose] takes.
//
// In a pod with the proxy of a mesh and without edges, but for those of init containers,
// it supposes that the app should wait for the proxy.
func AsItRuns(pod *corev1.Pod, on startup.Kubernetes) (Run, error) {
	r, err := Read(pod)
	if err != nil {
		return Run{}, err
	}
	run := Run{Pod: withStandIns(pod, r), Added: r.Expected}
	if r, err = Read(run.Pod); err != nil {
		return Run{}, err
	}
	edges := run.choose(r, on)
	if len(run.Written) > 0 {
		if run.Pod, err = Write(run.Pod, startup.Plan{Edges: run.Written}, ""); err != nil {
			return Run{}, fmt.Errorf("writing what the pod requests: %w", err)
		}
		if r, err = Read(run.Pod); err != nil {
			return Run{}, fmt.Errorf("reading what was written: %w", err)
		}
	}
	run.Plan, run.Facts = r.plan(), r.Facts
	run.Plan.Edges = slices.Concat(edges, run.Supposed, brought(r, edges))
	run.waits(r)
	run.ends()
	return run, nil
}

// ends records which containers end after others: by their gates, and our proxy beside applications
// that all have one, in a pod that does not run for ever.
func (run *Run) ends() {
	run.EndsWith = map[string][]string{}
	work, _ := NodeWork(run.Pod)
	var apps []string
	proxy, gated := false, true
	for _, c := range carriers(withGates(run.Pod, work)) {
		if mains := HelperOf(c.Container); len(mains) > 0 {
			run.EndsWith[c.Name] = mains
		}
		switch {
		case c.kind != startup.Plain:
		case c.Name == OurProxy:
			proxy = true
		default:
			apps, gated = append(apps, c.Name), gated && Gated(c.Container)
		}
	}
	if policy := run.Pod.Spec.RestartPolicy; proxy && gated && (policy == corev1.RestartPolicyOnFailure || policy == corev1.RestartPolicyNever) {
		run.EndsWith[OurProxy] = apps
	}
}

// withStandIns is pod with a container for each that is expected, where [Reading.plan] has it.
func withStandIns(pod *corev1.Pod, r Reading) *corev1.Pod {
	out, always := pod.DeepCopy(), corev1.ContainerRestartPolicyAlways
	for i, c := range r.plan().Containers {
		switch in := slices.Contains(r.Expected, c.Name); {
		case in && c.Kind == startup.Sidecar:
			out.Spec.InitContainers = slices.Insert(out.Spec.InitContainers, i, corev1.Container{Name: c.Name, RestartPolicy: &always})
		case in:
			out.Spec.Containers = slices.Insert(out.Spec.Containers, i-len(out.Spec.InitContainers), corev1.Container{Name: c.Name})
		}
	}
	return out
}

// choose returns the edges of what was read, each with its mechanism, and notes
// which of them are to be written, or supposed.
func (run *Run) choose(r Reading, on startup.Kubernetes) []startup.Edge {
	var edges []startup.Edge
	choices := Choose(r, on)
	run.Stronger = r.Stronger(choices, on)
	for _, c := range choices {
		edges = append(edges, c.Edge)
		if c.Present == nil && (c.Edge.By == startup.Gate || c.Edge.By == startup.Native || c.Edge.By == startup.Hold) {
			run.Written = append(run.Written, c.Edge)
		}
	}
	for _, a := range Advise(r, on) {
		if _, has := r.Facts[a.Edge.From]; has && a.Supposed {
			e := a.Edge
			e.By = ""
			run.Supposed = append(run.Supposed, e)
		}
	}
	return edges
}

// brought are the edges that came with what was written: the agent's own init
// container goes first.
func brought(r Reading, have []startup.Edge) []startup.Edge {
	var out []startup.Edge
	had := byEnds(have)
	for _, e := range r.Plan().Expand().Edges {
		if _, known := had[endsOf(e)]; !known {
			out = append(out, e)
		}
	}
	return out
}

// waits records the sleeps and hooks of the pod: their times are not in a plan.
func (run *Run) waits(r Reading) {
	run.Sleeps, run.Lasts, run.Hooks = map[string]time.Duration{}, map[string]time.Duration{}, map[string]Hook{}
	for _, f := range r.Found {
		if f.Mechanism == startup.Sleep || f.Mechanism == startup.BoundedLoop {
			run.Sleeps[f.Container] += f.lasts
		}
	}
	all := reader{pod: run.Pod, all: carriers(run.Pod), Reading: r}
	for _, c := range all.all {
		own := c.Container.DeepCopy()
		unwrap(own)
		sleeps, lasts := shell.Times(argvOf(own))
		if _, found := run.Sleeps[c.Name]; !found && sleeps > 0 {
			run.Sleeps[c.Name] = sleeps
		}
		if lasts > 0 {
			run.Lasts[c.Name] = lasts
		}
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
			continue
		}
		h := Hook{Once: c.Lifecycle.PostStart.HTTPGet != nil}
		if w, ok := all.hookWait(c); ok && all.has(w.from) {
			h.Polls, h.Timeout, h.GoesOn = w.from, w.timeout, w.givesUp
		}
		run.Hooks[c.Name] = h
	}
}
