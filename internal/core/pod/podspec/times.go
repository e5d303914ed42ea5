package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// Times are the times of a pod's sleeps and hooks, which a plan does not contain. All maps are by container.
type Times struct {
	Sleeps map[string]time.Duration // time before its command begins, or until its polls end
	Lasts  map[string]time.Duration // how long its command runs, if it ends with a sleep
	Hooks  map[string]Hook          // its postStart hook
}

// A Hook describes how a postStart hook waits.
type Hook struct {
	Polls   string        // the container that it probes; empty: it does not wait
	Timeout time.Duration // 0: it waits for ever
	GoesOn  bool          // after the timeout it succeeds without an answer
	Once    bool          // it probes once, and fails if there is no answer
}

// TimesOf returns the times of a pod, of which r was read.
func TimesOf(pod *corev1.Pod, r podstart.Reading) Times {
	out := Times{map[string]time.Duration{}, map[string]time.Duration{}, map[string]Hook{}}
	for _, f := range r.Found {
		if f.Mechanism == startup.Sleep || f.Mechanism == startup.BoundedLoop {
			out.Sleeps[f.Container] += f.Lasts
		}
	}
	all := reader{pod: pod, all: podContainers(pod), Reading: r}
	for _, c := range all.all {
		own := c.Container.DeepCopy()
		unwrap(own)
		sleeps, lasts := shell.Times(argvOf(own))
		if _, found := out.Sleeps[c.Name]; !found && sleeps > 0 {
			out.Sleeps[c.Name] = sleeps
		}
		if lasts > 0 {
			out.Lasts[c.Name] = lasts
		}
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
			continue
		}
		h := Hook{Once: c.Lifecycle.PostStart.HTTPGet != nil}
		if w, ok := all.hookWait(c); ok && all.has(w.from) {
			h.Polls, h.Timeout, h.GoesOn = w.from, w.timeout, w.givesUp
		}
		out.Hooks[c.Name] = h
	}
	return out
}
