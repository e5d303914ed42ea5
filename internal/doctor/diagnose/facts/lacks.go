package facts

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// Young is the age until which a pod that is not ready counts as starting, unless its startup probe allows more.
const Young = 10 * time.Minute

// A Lack is a container that is not yet as it is in a healthy pod, or a readiness gate that is not open.
type Lack struct {
	Container string // empty: a readiness gate
	What      string
	Gate      string // the type of the condition of a readiness gate
	Says      string // the reason and the message of that condition
	Failed    bool   // the condition says that a check failed, so that the gate does not open by itself
	Probing   bool   // its startup probe has not succeeded
	Unknown   bool   // the evidence does not show it
	Again     bool   // it ended, and waits for its next start
}

// Lacks returns what keeps a pod from being healthy. A container without a status is left out: what is not in the
// evidence is unknown.
func (s *Pod) Lacks() (out []Lack) {
	if s.Object.Status.Phase == corev1.PodSucceeded || s.Deleted() || s.isTrue(corev1.PodReady) {
		return nil // of a pod that is ready, all is
	}
	for _, c := range s.Containers {
		status, spec := s.Status(c.Name), s.Spec(c.Name)
		if status == nil || spec == nil || c.Kind == evidence.Ephemeral {
			continue
		}
		switch {
		case c.Waiting != nil:
			out = append(out, Lack{Container: c.Name, What: fmt.Sprintf("%s waits (%s)", c.Name, cmp.Or(c.Waiting.Reason, "without a reason")), Again: c.Waiting.Reason == "CrashLoopBackOff"})
		case status.State.Running != nil && c.Kind == startup.Init:
			out = append(out, Lack{Container: c.Name, What: fmt.Sprintf("init container %s runs", c.Name)})
		case status.State.Running != nil && !status.Ready:
			out = append(out, Lack{Container: c.Name, What: c.Name + " is not ready", Probing: probing(spec, status)})
		}
	}
	for _, g := range s.Object.Spec.ReadinessGates {
		if !s.isTrue(g.ConditionType) {
			out = append(out, s.closed(g.ConditionType))
		}
	}
	if len(out) == 0 {
		return s.unproved()
	}
	return out
}

// isTrue reports whether a condition of the pod is true. Controllers may leave out since when.
func (s *Pod) isTrue(kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(s.Object.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// closed returns what is to be said of a readiness gate that is not open, in the words of its controller.
func (s *Pod) closed(kind corev1.PodConditionType) Lack {
	l := Lack{What: fmt.Sprintf("the readiness gate %s is not open", kind), Gate: string(kind), Says: "no controller has set its condition yet"}
	for _, c := range s.Object.Status.Conditions {
		if c.Type == kind {
			l.Says = s.Show([]byte(strings.Trim(c.Reason+": "+strings.TrimSpace(c.Message), ": ")))
			l.Failed = failed.MatchString(c.Reason + " " + c.Message)
		}
	}
	return l
}

// failed matches what controllers say of a check that has failed, and not of one that has yet to come to an end.
var failed = regexp.MustCompile(`(?i)fail|unhealthy|denied|forbidden|timed? ?out|mismatch|rejected|unreachable`)

// StartsUp reports whether a container runs and is not ready for the first time, in a pod in which nothing has ended: its
// startup probe has not succeeded or, of a pod that is young, its readiness probe.
func (s *Pod) StartsUp(container string, old bool) bool {
	ended := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool {
		return c.Restarts > 0 || slices.ContainsFunc(c.Runs, func(r evidence.Run) bool { return r.Exit != nil && *r.Exit != 0 }) || s.HasEvent(c.Name, "Killing", "")
	})
	status, spec := s.Status(container), s.Spec(container)
	if ended || s.Deleted() || status == nil || spec == nil || status.Ready || status.State.Running == nil {
		return false
	}
	return probing(spec, status) || spec.ReadinessProbe != nil && !old
}

// probing reports whether a container has a startup probe that has not succeeded.
func probing(spec *corev1.Container, status *corev1.ContainerStatus) bool {
	return spec.StartupProbe != nil && (status.Started == nil || !*status.Started)
}

// unproved returns what keeps a pod from being healthy of whose containers the evidence shows nothing that does: its
// phase, its conditions, or that the evidence has neither.
func (s *Pod) unproved() []Lack {
	status, message := s.Object.Status, ""
	notReady, started := false, len(status.ContainerStatuses) > 0
	for _, c := range status.Conditions {
		if c.Status == corev1.ConditionFalse && (c.Type == corev1.PodReady || c.Type == corev1.PodScheduled && !started) {
			notReady, message = true, ""
			if text := cmp.Or(c.Message, c.Reason); text != "" {
				message = fmt.Sprintf(" (%s)", s.Show([]byte(text)))
			}
		}
	}
	switch {
	case status.Phase == corev1.PodPending && !started:
		return []Lack{{What: "no container of the pod has started" + message}}
	case notReady:
		return []Lack{{What: "the pod is not ready" + message}}
	case !started && status.Phase != corev1.PodFailed:
		return []Lack{{What: "how its containers are is not in the evidence", Unknown: true}}
	}
	return nil
}
