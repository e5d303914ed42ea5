package diagnoser

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
)

// A record is what is kept of a pod; of one that was not injected its name alone.
type record struct {
	types.NamespacedName
	uid     types.UID
	version string

	injected  bool
	scheduled time.Time // zero: it has no node
	ends      int32     // restarts of its containers, and 1 for a pod that has failed
	lastEnd   time.Time // of a container
	logs      int32     // that may be read: two of each container
	ready     bool
	over      bool // it has ended, or is deleted
}

// GetObjectMeta is for the informer, which finds an object's key by it.
func (r *record) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: r.uid, ResourceVersion: r.version}
}

// keep is the informer's transform: what it returns is stored in place of the pod.
func keep(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a record already, or the informer's note of a missed deletion
	}
	r := &record{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID, version: pod.ResourceVersion}
	if _, r.injected = pod.Annotations[contract.Status]; !r.injected {
		return r, nil
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodScheduled:
			r.scheduled = c.LastTransitionTime.Time
		case c.Type == corev1.PodReady:
			r.ready = true
		}
	}
	for _, c := range statuses(pod) {
		r.ends += c.RestartCount
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil && end.FinishedAt.After(r.lastEnd) {
				r.lastEnd = end.FinishedAt.Time
			}
		}
	}
	r.logs = 2 * int32(len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	r.over = pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Status.Phase == corev1.PodFailed {
		r.ends++
	}
	return r, nil
}

// statuses are those of all containers.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}
