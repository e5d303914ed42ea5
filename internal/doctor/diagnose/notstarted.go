package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// notStarted finds pods that have no node, no sandbox or no volume.
func notStarted(s *subject) (out []result.Finding) {
	started := slices.ContainsFunc(s.Containers, func(c *evidence.Container) bool { return len(c.Runs) > 0 })
	if started {
		return nil
	}
	for _, k := range states.NotStarted {
		q := s.QuoteEvents("", k.Reason)
		if placed := s.Object.Spec.NodeName != ""; len(q) == 0 || placed && k.Code == "not-scheduled" || s.overcome(k.Reason) {
			continue
		}
		text := strings.TrimPrefix(q[len(q)-1].Text, k.Reason+": ")
		f := result.Finding{
			Code: k.Code, Confidence: result.Certain, Sentence: fmt.Sprintf("%s: %s", k.What, text), Evidence: q,
			Disproof: "a container of the pod that started", Remedy: finding.Remedy{Sentence: k.Do, Command: s.Kubectl("describe pod %s", s.Object.Name)},
		}
		if initKilled.MatchString(text) {
			s.limitTooLow(&f)
		}
		if k.Code == "volume-missing" {
			f.Remedy.Sentence = cmp.Or(states.VolumeRemedy(text), f.Remedy.Sentence)
		}
		out = append(out, f)
	}
	if f, is := s.unscheduled(); is && (len(s.QuoteEvents("", "FailedScheduling")) == 0 || s.overcome("FailedScheduling")) {
		out = append(out, f)
	}
	return out
}

// overcome reports whether a later event proves that a step of the start succeeded after the last event that says it failed.
// Events have whole seconds: within one, the order of the steps decides.
func (s *subject) overcome(reason string) bool {
	last, failed := s.LastEvent("", reason)
	return failed && slices.ContainsFunc(s.Events, func(e evidence.Event) bool {
		return states.Overcomes(e.Reason, reason) && last.Last.Compare(e.Last) != evidence.After
	})
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

// initWithoutNetwork finds init containers whose calls fail because they are captured and the proxy starts later.
func initWithoutNetwork(s *subject) (out []result.Finding) {
	if s.Proxy == nil || s.Proxy.Kind == startup.Sidecar || s.Capture.None != "" {
		return nil
	}
	for _, c := range s.Inits {
		for _, y := range s.Calls.By(c.Name, calls.Refused, calls.TimedOut, calls.Reset) {
			takes, why := s.Capture.Takes(c.Name, y.To)
			if takes == no || !s.CaptureFirst(c.Name) {
				continue
			}
			f := result.Finding{
				Code: "init-needs-network", Container: c.Name, Confidence: result.Certain,
				Sentence: fmt.Sprintf("init container %s has no network: its calls go to %s, which starts only when all init containers have ended", c.Name, s.Proxy.Name),
				Evidence: []evidence.Quote{y.Quote, s.Quote(evidence.Time{}, "%s is a plain container, and the capture is written before %s", s.Proxy.Name, c.Name)},
				Disproof: fmt.Sprintf("that %s is left out of the capture", y.To),
			}
			s.remedy(&f, remedies.Init, s.Proxy.Name, c.Name, y.To.Port)
			if y.Named != nil {
				f.Confidence, f.Evidence = result.Likely, append(f.Evidence, *y.Named)
			}
			if takes == perhaps {
				f.Confidence, f.Against = result.Likely, []evidence.Quote{s.Quote(evidence.Time{}, "%s", why)}
			}
			out = append(out, f)
			break
		}
	}
	return out
}
