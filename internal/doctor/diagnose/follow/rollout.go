package follow

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resources maps the kinds of workload that Follow can follow to their API resources.
var resources = map[string]schema.GroupVersionResource{
	"Deployment":  appsv1.SchemeGroupVersion.WithResource("deployments"),
	"StatefulSet": appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	"DaemonSet":   appsv1.SchemeGroupVersion.WithResource("daemonsets"),
	"ReplicaSet":  appsv1.SchemeGroupVersion.WithResource("replicasets"),
	"Job":         batchv1.SchemeGroupVersion.WithResource("jobs"),
}

// A rollout is the progress of a workload, as its controller reports it.
type rollout struct {
	done  bool
	pods  int    // number of pods that must be ready; 0 for a Job
	waits string // reason why the roll-out is not done
	stuck string // reason why it cannot complete
}

// rolloutOf returns the progress of a workload, by the rules of kubectl rollout status.
func rolloutOf(object any) rollout {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return deployment(o)
	case *appsv1.StatefulSet:
		return statefulSet(o)
	case *appsv1.DaemonSet:
		s := o.Status
		switch {
		case s.ObservedGeneration < o.Generation:
			return unseen
		case s.UpdatedNumberScheduled < s.DesiredNumberScheduled && o.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
			return waiting("%d of %d pods are of the newest revision", s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
		case s.NumberAvailable < s.DesiredNumberScheduled:
			return waiting("%d of %d pods are available", s.NumberAvailable, s.DesiredNumberScheduled)
		}
		return rollout{done: true, pods: int(s.DesiredNumberScheduled)}
	case *appsv1.ReplicaSet:
		switch want := wanted(o.Spec.Replicas); {
		case o.Status.ObservedGeneration < o.Generation:
			return unseen
		case o.Status.AvailableReplicas < want || o.Status.Replicas > want:
			return waiting("%d of %d pods are available", o.Status.AvailableReplicas, want)
		default:
			return rollout{done: true, pods: int(want)}
		}
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
				return rollout{done: true}
			}
		}
		return waiting("%d pods run, %d succeeded, %d failed", o.Status.Active, o.Status.Succeeded, o.Status.Failed)
	}
	return waiting("its state is not known")
}

func deployment(o *appsv1.Deployment) rollout {
	s, want := o.Status, wanted(o.Spec.Replicas)
	if s.ObservedGeneration < o.Generation {
		return unseen
	}
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" {
			return rollout{stuck: "its progress deadline is exceeded"}
		}
	}
	switch {
	case s.UpdatedReplicas < want:
		return waiting("%d of %d pods are of the newest revision", s.UpdatedReplicas, want)
	case s.Replicas > s.UpdatedReplicas:
		return waiting("%d pods of an older revision are left", s.Replicas-s.UpdatedReplicas)
	case s.AvailableReplicas < s.UpdatedReplicas:
		return waiting("%d of %d pods are available", s.AvailableReplicas, s.UpdatedReplicas)
	}
	return rollout{done: true, pods: int(want)}
}

func statefulSet(o *appsv1.StatefulSet) rollout {
	s, want := o.Status, wanted(o.Spec.Replicas)
	var kept int32
	if u := o.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		kept = min(*u.Partition, want)
	}
	switch {
	case s.ObservedGeneration < o.Generation:
		return unseen
	case s.ReadyReplicas < want:
		return waiting("%d of %d pods are ready", s.ReadyReplicas, want)
	case o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
	case kept > 0 && s.UpdatedReplicas < want-kept, kept == 0 && s.UpdateRevision != s.CurrentRevision:
		return waiting("%d of %d pods are of the newest revision", s.UpdatedReplicas, want-kept)
	}
	return rollout{done: true, pods: int(want)}
}

// unseen is the progress while the workload's status still describes the previous specification.
var unseen = rollout{waits: "the controller has not seen the newest specification"}

func waiting(format string, args ...any) rollout { return rollout{waits: fmt.Sprintf(format, args...)} }

// wanted returns the number of replicas; the API's default is 1.
func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
