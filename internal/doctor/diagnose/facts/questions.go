package facts

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
	"outrider.dev/startup"
)

// hookParts separate the command in the message of a failed hook from what it said.
var hookParts = regexp.MustCompile(`failed - error: (.*)$`)

// WellSince reports whether a container became ready after an event.
func (s *Pod) WellSince(c *evidence.Container, e evidence.Event) bool {
	status, last := s.Status(c.Name), c.Last()
	return status != nil && status.Ready && last != nil && last.Started.Compare(e.Last) == evidence.After
}

// Holds reports whether other containers wait for a container by its postStart hook.
func (s *Pod) Holds(c *evidence.Container) bool {
	if c != s.Proxy {
		return false
	}
	for _, e := range s.Order.Plan().Edges {
		if e.From == c.Name && e.By == startup.Hold {
			return true
		}
	}
	return false
}

// LastEvent returns the last event with a reason about a container; false if there is none.
func (s *Pod) LastEvent(container, reason string) (last evidence.Event, found bool) {
	for _, e := range s.Events {
		if e.Container == container && e.Reason == reason {
			last, found = e, true
		}
	}
	return last, found
}

// HookSays returns what a message says that went wrong with a hook, without the words around it.
func (s *Pod) HookSays(message string) string {
	text := strings.Join(strings.Fields(s.Show([]byte(strings.ReplaceAll(message, "\n", " ")))), " ")
	if m := hookParts.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	text, _, _ = strings.Cut(text, ", message: ")
	for _, before := range []string{"unable to start container process: ", "exec failed: ", "desc = "} {
		if i := strings.LastIndex(text, before); i >= 0 {
			text = text[i+len(before):]
			break
		}
	}
	return why.Cut(strings.TrimSuffix(text, ": unknown"), 160)
}

// EndedByHook reports whether the kubelet ended a run since a postStart hook failed.
func (s *Pod) EndedByHook(container string, r evidence.Run) bool {
	_, failed := s.LastEvent(container, "FailedPostStartHook")
	return failed && r.Exit != nil && (*r.Exit == 0 || r.Signal != 0)
}

// DeadlinePassed reports whether the deadline of the pod, or of its Job, has passed.
func (s *Pod) DeadlinePassed() bool {
	const reason = "DeadlineExceeded"
	return s.Object.Status.Reason == reason || slices.ContainsFunc(s.Events, func(e evidence.Event) bool { return e.Reason == reason })
}

// ProbeText returns the message of the last event about a failed probe of a container; empty: there is none.
func (s *Pod) ProbeText(container, kind string) (text string) {
	for _, e := range s.Events {
		if e.Container == container && e.Reason == "Unhealthy" && strings.HasPrefix(strings.ToLower(e.Message), kind) {
			text = s.Show([]byte(e.Message))
		}
	}
	return text
}

// ProbedByAgent returns the last line in which the agent of the proxy says what a probe of a container got that it asked.
func (s *Pod) ProbedByAgent(container string) (quote evidence.Quote, said bool) {
	for _, v := range s.Serving {
		for _, q := range s.Said.In(v.Number, ProbeFailed) {
			if strings.Contains(q.Text, "/app-health/"+container+"/") {
				quote, said = q, true
			}
		}
	}
	return quote, said
}

// ShouldEnd reports whether the pod does a work that ends.
func (s *Pod) ShouldEnd() bool {
	policy := s.Object.Spec.RestartPolicy
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure
}

// MemoryLimit returns the memory limit of a container, or words for one that is not set or not known.
func (s *Pod) MemoryLimit(container string) string {
	if c := s.Spec(container); c != nil {
		if m, has := c.Resources.Limits["memory"]; has {
			return m.String()
		}
	}
	if s.Omitted.Spec {
		return "it is not in the evidence"
	}
	return "none is set: the node's"
}

// LastMessage returns the message of the last event with a reason about a container; empty: there is none.
func (s *Pod) LastMessage(container, reason string) string {
	e, _ := s.LastEvent(container, reason)
	return strings.TrimPrefix(e.Message, "Error: ")
}

// Disrupted reports whether the status itself says why the pod is removed.
func (s *Pod) Disrupted() bool {
	for _, c := range s.Object.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
