package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
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
// to which a node adds no gate is returned itself.
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

// InsteadOfNode returns the pod with what its node would do done by an init container of that image and
// by volumes, for where no node does it. entrypoint is the command of an image; nil where it is
// unknown: then the gate has the container's arguments alone. A pod for which a node does nothing is
// returned itself.
func InsteadOfNode(pod *corev1.Pod, image string, entrypoint func(image string) []string) (*corev1.Pod, error) {
	work, ok := NodeWork(pod)
	if !ok {
		return pod, nil
	}
	w := &writer{out: pod.DeepCopy(), image: image}
	delete(w.out.Annotations, contract.NodeAnnotation)
	for _, c := range carriers(w.out) {
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
	c.Command, c.Args = nil, []string{"copy", AgentPath} // the image's own command is the agent
	if len(work.Capture) == 0 {
		return w.out, nil
	}
	root := int64(0)
	c.Args = slices.Concat([]string{"init", "--copy", AgentPath}, work.Capture)
	c.SecurityContext = &corev1.SecurityContext{RunAsUser: &root, RunAsNonRoot: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}}
	return w.out, nil
}
