package diagnose

import (
	"cmp"
	"fmt"
	"outrider.dev/internal/doctor/diagnose/chain"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// notStarted finds pods that have no node, no sandbox or no volume.
func notStarted(s *subject) (out []result.Finding) {
	started := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool { return len(c.Runs) > 0 })
	if started {
		return nil
	}
	for _, k := range states.NotStarted {
		q := s.QuoteEvents("", k.Reason)
		if placed := s.Object.Spec.NodeName != ""; len(q) == 0 || placed && k.Code == "not-scheduled" || chain.Overcome(s.Pod, k.Reason) {
			continue
		}
		text := strings.TrimPrefix(states.Telling(q), k.Reason+": ")
		f := result.Finding{
			Code: k.Code, Confidence: result.Certain, Sentence: fmt.Sprintf("%s: %s", k.What, why.Cut(states.StartSays(text), 400)), Evidence: q,
			Disproof: "a container of the pod that started", Remedy: finding.Remedy{Sentence: cmp.Or(states.StartRemedy(k.Code, text), k.Do), Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		if initKilled.MatchString(text) {
			s.limitTooLow(&f)
		}
		out = append(out, f)
	}
	if f, is := s.unscheduled(); is && (len(s.QuoteEvents("", "FailedScheduling")) == 0 || chain.Overcome(s.Pod, "FailedScheduling")) {
		out = append(out, f)
	}
	return out
}

// unscheduled returns the finding about a pod without a node, by its condition, which stays when the events are
// forgotten. Gates of the scheduling are meant, so a young pod with one only waits.
func (s *subject) unscheduled() (result.Finding, bool) {
	for _, c := range s.Object.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse {
			continue
		}
		m, known := states.Find(states.Unscheduled, c.Reason, c.Message)
		age, aged := s.Age()
		if !known || c.Reason == corev1.PodReasonSchedulingGated && aged && age < facts.Young {
			return result.Finding{}, false
		}
		f := s.stateOf(m, "", c.Reason, c.Message)
		f.Disproof = "a node of the pod (spec.nodeName)"
		return f, true
	}
	return result.Finding{}, false
}

// initKilled matches what the container runtime says of a container whose memory limit is too low for its first process.
var initKilled = regexp.MustCompile(`(?i)container init was OOM-killed|memory limit too low|minimum memory limit`)

// limitTooLow changes a finding to that of a memory limit with which nothing can start.
func (s *subject) limitTooLow(f *result.Finding) {
	var limits []string
	for _, c := range s.Object.Spec.Containers {
		if m, has := c.Resources.Limits["memory"]; has {
			limits = append(limits, fmt.Sprintf("%s %s", c.Name, m.String()))
		}
	}
	f.Sentence = fmt.Sprintf("a memory limit of the pod is too low: the kernel kills its containers before they start (%s)", strings.Join(limits, ", "))
	f.Code, f.Remedy.Sentence = "out-of-memory", "raise the memory limit: the container runtime itself needs some MiB of it"
}
