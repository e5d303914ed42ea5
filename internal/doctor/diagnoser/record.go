package diagnoser

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
)

// A record contains the facts that are kept of a pod. For a pod that was not injected, these are only its name, UID
// and version.
type record struct {
	types.NamespacedName
	uid     types.UID
	version string

	injected  bool
	scheduled time.Time // zero: not scheduled yet
	ends      int32     // restarts of its containers, plus 1 if the pod has failed
	lastEnd   time.Time // when a container last ended
	logs      int32     // number of logs that can be read: two for each container, the current and the previous one
	ready     bool
	over      bool // the pod has ended or is being deleted
}

// GetObjectMeta lets the informer find the key of a record.
func (r *record) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: r.uid, ResourceVersion: r.version}
}

// keep is the informer's transform: the informer stores its result in place of the pod.
func keep(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // already a record, or the informer's tombstone of a missed deletion
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

// statuses returns the statuses of all containers.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}
