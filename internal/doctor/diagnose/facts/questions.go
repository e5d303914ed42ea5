package facts

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// hookParts separate the command in the message of a failed hook from what it said.
var hookParts = regexp.MustCompile(`failed - error: (.*)$`)

// notExecuted matches what the container runtime and shells say of the command of a hook that never ran.
var notExecuted = regexp.MustCompile(`(?i)OCI runtime exec failed|executable file not found|no such file or directory|command not found|permission denied|exec format error|exited with 12[67]`)

// NotExecuted reports whether the command of a hook never ran, by the message about its failure.
func NotExecuted(message string) bool { return notExecuted.MatchString(message) }

// HookError is the reason of a container that waits since its postStart hook failed.
const HookError = "PostStartHookError"

// WaitedInVain quotes what shows that the postStart hook of the proxy, which waits until it is ready, failed: the last event
// of it, or else why the container waits. It returns false if there is neither, or the command of the hook never ran.
func (s *Pod) WaitedInVain() (q evidence.Quote, is bool) {
	if s.Proxy == nil || s.Deleted() {
		return q, false
	}
	message := ""
	if w := s.Proxy.Waiting; w != nil && w.Reason == HookError {
		message, is = w.Message, true
		q = s.Quote(evidence.Time{}, "%s waits: %s: %s", s.Proxy.Name, w.Reason, s.flat(message))
	}
	if e, failed := s.LastEvent(s.Proxy.Name, "FailedPostStartHook"); failed && (!is || len(e.Message) > len(message)) {
		message, is = message+e.Message, true
		q = s.QuoteEvent(e, e.Last, "FailedPostStartHook: "+e.Message)
	}
	return q, is && !notExecuted.MatchString(message)
}

// flat returns a text in one line.
func (s *Pod) flat(text string) string {
	return strings.Join(strings.Fields(s.Show([]byte(text))), " ")
}

// WellSince reports whether a container became ready after an event.
func (s *Pod) WellSince(c *evidence.Container, e evidence.Event) bool {
	status, last := s.Status(c.Name), c.Last()
	return status != nil && status.Ready && last != nil && last.Started.Compare(e.Last) == evidence.After
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
	c := s.Container(container)
	return (failed || c != nil && c.Waiting != nil && c.Waiting.Reason == HookError) && r.Exit != nil && (*r.Exit == 0 || r.Signal != 0)
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

// ShouldEnd reports whether the pod does a work that ends: so do all pods of a Job, whose restartPolicy the evidence may not
// have.
func (s *Pod) ShouldEnd() bool {
	policy, by := s.Object.Spec.RestartPolicy, metav1.GetControllerOf(s.Object)
	if policy == "" && by != nil && by.Kind == "Job" {
		return by.APIVersion == "" || strings.HasPrefix(by.APIVersion, "batch/")
	}
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

// Cut reports whether probes reached a proxy that requires mutual TLS. Such a proxy accepts the probe's connection, and then
// closes it.
func Cut(probes []evidence.Quote) bool {
	return slices.ContainsFunc(probes, func(q evidence.Quote) bool {
		l := strings.ToLower(q.Text)
		return strings.Contains(l, "reset by peer") || strings.Contains(l, ": eof")
	})
}
