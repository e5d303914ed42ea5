package follow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// small returns a reduced copy of a pod, with only the fields that this package reads. The copy is about a tenth of
// the pod's size.
func small(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // the tombstone of a deleted pod
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	for _, list := range []struct{ from, to *[]corev1.ContainerStatus }{
		{&p.Status.InitContainerStatuses, &out.Status.InitContainerStatuses},
		{&p.Status.ContainerStatuses, &out.Status.ContainerStatuses},
	} {
		for _, c := range *list.from {
			kept := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount}
			if w := c.State.Waiting; w != nil {
				kept.State.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
			}
			if t := c.State.Terminated; t != nil {
				kept.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode}
			}
			*list.to = append(*list.to, kept)
		}
	}
	return out, nil
}

// A state contains facts about a pod. When one of them changes, the pod is diagnosed again.
type state struct {
	ready, ended, slow bool
	trouble            string // text that names the containers that restarted or fail
}

// due reports whether the pod must be diagnosed.
func (s state) due() bool { return s.ready || s.ended || s.slow || s.trouble != "" }

// starting lists the waiting reasons that containers have during a normal start.
var starting = []string{"", "ContainerCreating", "PodInitializing"}

// stateOf returns the state of a pod; slow means that the pod has existed for longer than a start may take.
func stateOf(p *corev1.Pod, slow bool) state {
	s := state{ready: isReady(p), ended: isEnded(p)}
	s.slow = slow && !s.ready && !s.ended
	var b strings.Builder
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		// The waiting reason is not part of the state, because ErrImagePull and ImagePullBackOff alternate.
		waits := c.State.Waiting != nil && !slices.Contains(starting, c.State.Waiting.Reason)
		failed := c.State.Terminated != nil && c.State.Terminated.ExitCode != 0
		if c.RestartCount > 0 || waits || failed {
			fmt.Fprintf(&b, "%s %d %v;", c.Name, c.RestartCount, waits || failed)
		}
	}
	s.trouble = b.String()
	return s
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func isEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// slowIn returns the time until the start of a pod counts as slow. If this machine's clock is behind the API
// server's, the pod may seem to be created in the future; the result is then the parameter slow itself.
func slowIn(p *corev1.Pod, slow time.Duration, now time.Time) time.Duration {
	return min(slow-now.Sub(p.CreationTimestamp.Time), slow)
}
