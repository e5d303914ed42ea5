package podspec

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// Times holds durations of sleeps and hooks in a pod, which a plan does not contain. The keys of the maps are
// containers.
type Times struct {
	Sleeps map[string]time.Duration // time before the container's command begins: a sleep, or a loop that polls for that long
	Lasts  map[string]time.Duration // running time of the command, if it ends with a sleep
	Hooks  map[string]Hook          // the container's postStart hook
}

// A Hook describes the wait of a postStart hook.
type Hook struct {
	Polls   string        // the container that it probes; empty if it does not wait
	Timeout time.Duration // 0: no limit
	GoesOn  bool          // after the timeout it succeeds without an answer
	Once    bool          // it probes only once, and fails if there is no answer
}

// TimesOf returns the times of a pod. r must be the reading of the same pod.
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
