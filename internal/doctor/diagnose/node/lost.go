// Package node finds pods whose node does not answer.
package node

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Lost finds a pod whose node stopped to answer, by the events of the controllers that watch nodes.
func Lost(s *facts.Pod) []result.Finding {
	lost, notReady := s.LastEvent("", "NodeNotReady")
	taint, marked := s.LastEvent("", "TaintManagerEviction")
	if strings.HasPrefix(taint.Message, "Cancel") {
		marked = false
	}
	if !notReady && (!marked || s.Disrupted()) || notReady && answersAgain(s, lost) {
		return nil
	}
	node := s.Object.Spec.NodeName
	f := result.Finding{
		Code: "node-lost", Confidence: result.Certain, Sentence: fmt.Sprintf("node %s is not ready: what its containers do is not known", node),
		Evidence: s.QuoteEvents("", "NodeNotReady", "TaintManagerEviction"),
		Disproof: "a report of the node's kubelet after that time",
		Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see node %s, and bring it back", node), Command: "kubectl describe node " + node},
	}
	f.Evidence = append(f.Evidence, s.ToBeGone()...)
	switch {
	case !notReady:
		f.Code = "evicted"
		f.Sentence = fmt.Sprintf("the pod is removed from node %s, whose taint it does not tolerate", node)
		f.Remedy.Sentence = "see the taints of the node: not-ready and unreachable mean that it does not answer"
	case s.Deleted():
		f.Sentence = fmt.Sprintf("node %s is not ready: the pod was marked for deletion, which waits for that node to answer; what its containers do is not known", node)
		f.Remedy.Sentence = "bring the node back; if it is off for good, taint it with node.kubernetes.io/out-of-service, or delete the Node, so that the pod is replaced and its volumes are free. Force the deletion only if the node is surely off"
	}
	return []result.Finding{f}
}

// answersAgain reports whether the node's kubelet reported something of the pod after an event, or the pod became ready.
func answersAgain(s *facts.Pod, lost evidence.Event) bool {
	if ready := s.Condition(corev1.PodReady, evidence.APIClock); ready.Known() {
		return true
	}
	for _, e := range s.Events {
		if e.Reporter == "kubelet" && e.Last.At.After(lost.Last.Latest()) {
			return true
		}
	}
	return false
}
