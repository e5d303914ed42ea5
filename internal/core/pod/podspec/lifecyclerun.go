package podspec

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// A Run is a pod in the form in which it will run: with the containers that injection has not added yet, and
// with the requested order written into it.
type Run struct {
	Pod  *corev1.Pod
	Plan startup.Plan // without stars; By is empty if nothing keeps the edge

	Added    []string       // containers that injection has not added yet; an empty container stands for each
	Written  []startup.Edge // requested edges that the pod did not keep yet
	Supposed []startup.Edge // not requested: it is assumed that an app should wait for its proxy

	Stronger string // advice on what would keep more, in one sentence

	Facts  map[string]Fact          // by container
	Sleeps map[string]time.Duration // by container: time before its command begins, or until its polls end
	Lasts  map[string]time.Duration // by container: how long its command runs, if it ends with a sleep
	Hooks  map[string]Hook          // by container: its postStart hook

	// EndsWith lists for a container the containers after whose end it ends too, with status 0.
	EndsWith map[string][]string
}

// A Hook describes how a postStart hook waits.
type Hook struct {
	Polls   string        // the container that it probes; empty: it does not wait
	Timeout time.Duration // 0: it waits for ever
	GoesOn  bool          // after the timeout it succeeds without an answer
	Once    bool          // it probes once, and fails if there is no answer
}

// AsItRuns returns the pod in the form in which it will run on a kubelet of that version. The mechanism of
// each edge is the one in the pod, else the choice of [Choose].
//
// If the pod has the proxy of a mesh and no edges except those of init containers, AsItRuns assumes that the
// app should wait for the proxy.
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

// ends records which containers end after others. These are the helpers, by their gates, and our proxy, if
// all its applications have a gate and the pod does not run for ever.
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

// withStandIns returns the pod with an empty container for each expected one, in the position that
// [Reading.plan] gives it.
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

// choose returns the edges of the reading, each with its mechanism, and records which of them are to be
// written, and which are assumed.
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

// brought returns the edges that Write added: the agent's own init container goes first.
func brought(r Reading, have []startup.Edge) []startup.Edge {
	var out []startup.Edge
	had := startup.ByEnds(have)
	for _, e := range r.Plan().Expand().Edges {
		if _, known := had[e.Ends()]; !known {
			out = append(out, e)
		}
	}
	return out
}

// waits records the sleeps and hooks of the pod, because a plan does not contain their times.
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
