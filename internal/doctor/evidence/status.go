package evidence

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/startup"
)

// NewPod returns a pod with the facts that its object contains.
func NewPod(object *corev1.Pod, from Source) *Pod {
	p := &Pod{Object: object, Source: from}
	add := func(c corev1.Container, kind startup.Kind, statuses []corev1.ContainerStatus) {
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if at < 0 {
			p.Containers = append(p.Containers, &Container{Name: c.Name, Kind: kind, Restarts: -1})
			return
		}
		p.Containers = append(p.Containers, newContainer(kind, statuses[at], from))
	}
	for _, c := range object.Spec.InitContainers {
		kind := startup.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = startup.Sidecar
		}
		add(c, kind, object.Status.InitContainerStatuses)
	}
	for _, c := range object.Spec.Containers {
		add(c, startup.Plain, object.Status.ContainerStatuses)
	}
	for _, c := range object.Spec.EphemeralContainers {
		add(corev1.Container(c.EphemeralContainerCommon), Ephemeral, object.Status.EphemeralContainerStatuses)
	}
	return p
}

// newContainer returns a container with the runs that its status describes. The number of the run in State is
// restartCount. If the container is waiting for its restart, the run in LastTerminationState has that number instead,
// and the status does not contain the run before it.
func newContainer(kind startup.Kind, s corev1.ContainerStatus, from Source) *Container {
	c := &Container{Name: s.Name, Kind: kind, Restarts: int(s.RestartCount)}
	last := c.Restarts - 1
	switch {
	case s.State.Running != nil:
		c.Runs = append(c.Runs, Run{Number: c.Restarts, Running: true, Started: Second(s.State.Running.StartedAt.Time, NodeClock), Source: from})
	case s.State.Terminated != nil:
		c.Runs = append(c.Runs, ended(c.Restarts, *s.State.Terminated, from))
	case s.State.Waiting != nil:
		c.Waiting = &Waiting{s.State.Waiting.Reason, s.State.Waiting.Message}
		last = c.Restarts
	}
	if t := s.LastTerminationState.Terminated; t != nil && last >= 0 {
		c.Runs = append([]Run{ended(last, *t, from)}, c.Runs...)
	}
	took := c.Restarts + 1
	if len(c.Runs) == 0 && c.Restarts == 0 {
		took = 0 // it has not started yet
	}
	c.Unknown = max(took-len(c.Runs), 0)
	return c
}

func ended(number int, t corev1.ContainerStateTerminated, from Source) Run {
	code := int(t.ExitCode)
	r := Run{Number: number, Started: Second(t.StartedAt.Time, NodeClock), Finished: Second(t.FinishedAt.Time, NodeClock), Exit: &code, Signal: int(t.Signal),
		Reason: t.Reason, Message: t.Message, Source: from}
	if r.Signal == 0 && code > 128 && code <= 128+64 {
		r.Signal = code - 128
	}
	// A container that could not be started has times in 1970.
	if r.Started.Known() && r.Started.At.Year() < 1980 {
		r.Started = Time{}
	}
	if r.Finished.Known() && r.Finished.At.Year() < 1980 {
		r.Finished = Time{}
	}
	return r
}

// FromEvents adds the first run of a container if the status no longer contains it. Its start is the first time of
// the event Started, if that event's count shows that it stands for all starts.
func (p *Pod) FromEvents() {
	for _, c := range p.Containers {
		for _, e := range p.Events {
			if e.Container != c.Name || e.Reason != "Started" || e.Count != c.Restarts+1 || !e.First.Known() || c.Run(0) != nil || e.First.Clock != NodeClock {
				continue
			}
			c.Runs = append([]Run{{Number: 0, Started: e.First, Source: e.Source}}, c.Runs...)
			c.Unknown = max(c.Unknown-1, 0)
		}
	}
}

// IsStatic reports whether the kubelet runs a pod from a file of its node, and not from the API server: by the
// annotations that the kubelet sets, and by the owner of the pod's copy in the API.
func IsStatic(pod *corev1.Pod) bool {
	source := pod.Annotations["kubernetes.io/config.source"]
	return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || source == "file" || source == "http" ||
		slices.ContainsFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool {
			return r.Kind == "Node" && (r.APIVersion == "v1" || r.APIVersion == "")
		})
}

// contradictions notes times that cannot all be true.
func (p *Pod) contradictions() {
	about := AboutWhat("")
	note := func(from Source, format string, args ...any) {
		p.Notes = append(p.Notes, Note{Source: from, Text: fmt.Sprintf(format, args...), About: about})
	}
	created := p.Skew.Place(Second(p.Object.CreationTimestamp.Time, APIClock))
	for _, c := range p.Containers {
		for i, r := range c.Runs {
			if r.Finished.Compare(r.Started) == Before {
				note(r.Source, "container %s, run %d: finished %s, before it started %s", c.Name, r.Number, show(r.Finished), show(r.Started))
			}
			if r.Started.Compare(created) == Before && !IsStatic(p.Object) {
				note(r.Source, "container %s, run %d: started %s, before the pod was created %s", c.Name, r.Number, show(r.Started), show(created))
			}
			if i > 0 && r.Started.Compare(c.Runs[i-1].Finished) == Before {
				note(r.Source, "container %s: run %d started %s, before run %d finished %s", c.Name, r.Number, show(r.Started), c.Runs[i-1].Number, show(c.Runs[i-1].Finished))
			}
		}
		if c.Unknown > 0 {
			about = OfRuns
			note(p.Source, "container %s: of %d of its runs nothing is known; the API keeps the last two", c.Name, c.Unknown)
			about = ""
		}
	}
	about = OfClock
	switch s := p.Skew; {
	case s.Contradicts():
		note(s.By[0], "no difference between the clocks of node %s and API server explains both %s and %s: one of the clocks was set meanwhile", p.Object.Spec.NodeName, s.By[0], s.By[1])
	case s.HasLeast && s.Least > 0:
		note(s.By[0], "the clock of node %s is ahead of the API server's by %s or more", p.Object.Spec.NodeName, s.Least)
	case s.HasMost && s.Most < 0:
		note(s.By[1], "the clock of node %s is behind the API server's by %s or more", p.Object.Spec.NodeName, -s.Most)
	}
}

func show(t Time) string { return t.At.Format(time.RFC3339Nano) }
