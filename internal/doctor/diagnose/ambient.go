package diagnose

import (
	"fmt"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// ambientRace finds calls of a pod of Istio's ambient mode that failed in the pod's first minute: ztunnel of the node may
// not have known the pod yet. Its log is not among the evidence of a pod, so that nothing decides.
func ambientRace(s *subject) (out []result.Finding) {
	if s.Proxy != nil || !capturescope.Ambient(s.Object) {
		return nil
	}
	start := evidence.Second(s.Object.CreationTimestamp.Time, evidence.NodeClock)
	if t := s.Object.Status.StartTime; t != nil {
		start = evidence.Second(t.Time, evidence.NodeClock)
	}
	for _, c := range s.Work() {
		for _, y := range s.Calls.By(c.Name, calls.Refused, calls.Reset, calls.TimedOut) {
			y, _ = calls.Placed(s.Pod.Pod, y)
			least, _, ok := y.At.Since(start)
			effect := s.EffectOf(y)
			if y.To.Loopback() || effect.Ended == nil || !ok || least > facts.Settled {
				continue
			}
			out = append(out, result.Finding{
				Code: "startup-race", Container: c.Name, Confidence: result.Possible,
				Sentence: fmt.Sprintf("startup race: %s made a call before ztunnel of its node served the pod, %s", c.Name, effect),
				Evidence: []evidence.Quote{y.Quote, s.Quote(evidence.Time{}, "the pod is in Istio's ambient mode: its connections go to ztunnel on the node")},
				Against:  []evidence.Quote{s.Quote(evidence.Time{}, "the log of ztunnel on node %s is not among the evidence, and what was called may have failed by itself", s.Object.Spec.NodeName)},
				Disproof: fmt.Sprintf("a line of ztunnel that it served the pod before %s", result.Instant(y.At)),
				Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see the log of ztunnel on node %s at that time, and let %s try again for a minute", s.Object.Spec.NodeName, c.Name)},
			})
			break
		}
	}
	return out
}

// isAmbient reports whether the connections of a pod without a sidecar go to ztunnel: that of a destination that refuses
// looks different to it.
func isAmbient(s *subject, _ calls.Call) bool {
	return s.Proxy == nil && capturescope.Ambient(s.Object)
}
