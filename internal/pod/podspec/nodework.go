package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/contract"
)

// NodeWork is what a node is to do for the pod before its containers run; false if that is nothing,
// or cannot be read: then the node creates none of them.
func NodeWork(pod *corev1.Pod) (contract.NodeWork, bool) {
	text, there := pod.Annotations[contract.NodeAnnotation]
	if !there {
		return contract.NodeWork{}, false
	}
	work, err := contract.ParseNodeWork(text)
	return work, err == nil
}

// SetNodeWork writes that into the pod.
func SetNodeWork(pod *corev1.Pod, work contract.NodeWork) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[contract.NodeAnnotation] = work.String()
}

// AsRun returns the pod with the gates that its node adds, as their containers run: what a container
// names as command and arguments follows its gate. The command of an image is not in it. A pod
// for which a node does nothing is returned itself.
func AsRun(pod *corev1.Pod) *corev1.Pod {
	work, ok := NodeWork(pod)
	if !ok {
		return pod
	}
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers = slices.Clone(pod.Spec.InitContainers), slices.Clone(pod.Spec.Containers)
	for _, c := range carriers(&out) {
		if args := work.Containers[c.Name]; len(args) > 0 {
			c.Command, c.Args = []string{AgentPath}, slices.Concat(args, c.Command, c.Args)
		}
	}
	return &out
}

// withoutNodeGates gives back to the kubelet what gates of the node had taken over.
func withoutNodeGates(pod *corev1.Pod) {
	work, _ := NodeWork(pod)
	for _, c := range carriers(pod) {
		if line, ok := contract.ParseGate(work.Containers[c.Name]); ok {
			giveBack(c.Container, line)
		}
	}
	delete(pod.Annotations, contract.NodeAnnotation)
}
