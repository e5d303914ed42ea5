package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// NodeWork returns the work that a node must do for the pod before its containers run. It returns false if there
// is none, or if the annotation is invalid; in the latter case the node refuses to create the pod's containers.
func NodeWork(pod *corev1.Pod) (contract.NodeWork, bool) {
	text, there := pod.Annotations[contract.NodeAnnotation]
	if !there {
		return contract.NodeWork{}, false
	}
	work, err := contract.ParseNodeWork(text)
	return work, err == nil
}

// SetNodeWork sets the pod's annotation with the work of the node.
func SetNodeWork(pod *corev1.Pod, work contract.NodeWork) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[contract.NodeAnnotation] = work.String()
}

// AsRun returns the pod with the gates that its node adds: each gate wraps the command and args that the pod
// sets. A command that only the image sets is missing in the result. If the node adds no gate, AsRun returns the
// pod itself.
func AsRun(pod *corev1.Pod) *corev1.Pod {
	work, _ := NodeWork(pod)
	return withGates(pod, work)
}

func withGates(pod *corev1.Pod, work contract.NodeWork) *corev1.Pod {
	if len(work.Containers) == 0 {
		return pod
	}
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers = slices.Clone(pod.Spec.InitContainers), slices.Clone(pod.Spec.Containers)
	for _, c := range podContainers(&out) {
		if args := work.Containers[c.Name]; len(args) > 0 {
			c.Command, c.Args = []string{AgentPath}, slices.Concat(args, c.Command, c.Args)
		}
	}
	return &out
}

// withoutNodeGates removes the gates that the node adds, and restores what they had taken over from the kubelet.
func withoutNodeGates(pod *corev1.Pod) {
	work, _ := NodeWork(pod)
	for _, c := range podContainers(pod) {
		if line, ok := contract.ParseGate(work.Containers[c.Name]); ok {
			giveBack(c.Container, line)
		}
	}
	delete(pod.Annotations, contract.NodeAnnotation)
}

// InsteadOfNode returns the pod for an environment where no node does its work: an init container with the given
// image does it instead, and volumes replace the node's directories. The function entrypoint returns the command
// of an image. If it returns nil, the command is unknown, and the gate runs only the container's args. If there
// is no work for a node, InsteadOfNode returns the pod itself.
func InsteadOfNode(pod *corev1.Pod, image string, entrypoint func(image string) []string) (*corev1.Pod, error) {
	work, ok := NodeWork(pod)
	if !ok {
		return pod, nil
	}
	w := &writer{out: pod.DeepCopy(), image: image}
	delete(w.out.Annotations, contract.NodeAnnotation)
	for _, c := range podContainers(w.out) {
		args, listed := work.Containers[c.Name]
		if !listed {
			continue
		}
		if len(c.Command) == 0 {
			c.Command = entrypoint(c.Image)
		}
		share := w.share
		if line, gated := contract.ParseGate(args); gated {
			share = func(c *corev1.Container) error { return w.putGate(c, line) }
		}
		if err := share(c.Container); err != nil {
			return nil, err
		}
	}
	if err := w.addGateVolumes(); err != nil {
		return nil, err
	}
	c := w.find(contract.InitContainer)
	c.Command, c.Args = nil, []string{"copy", AgentPath} // the entrypoint of the image is the agent
	if len(work.Capture) == 0 {
		return w.out, nil
	}
	root := int64(0)
	c.Args = slices.Concat([]string{"init", "--copy", AgentPath}, work.Capture)
	c.SecurityContext = &corev1.SecurityContext{RunAsUser: &root, RunAsNonRoot: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}}
	return w.out, nil
}
