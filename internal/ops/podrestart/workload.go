package podrestart

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
)

// A workload is an object that creates pods from a template.
type workload struct{ namespace, kind, name string }

func (w workload) String() string { return strings.ToLower(w.kind) + " " + w.namespace + "/" + w.name }

// ownerOf returns the workload of a pod. Its kind is empty if the pod has none. A ReplicaSet belongs to a Deployment
// if its name ends with the hash of the pod template.
func ownerOf(pod *corev1.Pod) workload {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return workload{}
	}
	w := workload{pod.Namespace, owner.Kind, owner.Name}
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if name, of := strings.CutSuffix(owner.Name, "-"+hash); owner.Kind == "ReplicaSet" && hash != "" && of {
		w.kind, w.name = "Deployment", name
	}
	return w
}

// A state describes a workload in the cluster.
type state struct {
	template corev1.PodTemplateSpec
	never    string // reason why a restart would not replace its pods; empty: it would
	rolling  bool   // a roll-out is under way
}

// stateOf reads the state of a workload from the API server.
func (o Options) stateOf(ctx context.Context, w workload) (s state, err error) {
	apps := o.Core.AppsV1()
	switch w.kind {
	case "Deployment":
		var d *appsv1.Deployment
		if d, err = apps.Deployments(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return s, err
		}
		s.template, s.rolling = d.Spec.Template, d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas
		if d.Spec.Paused {
			s.never = "the deployment is paused: kubectl rollout resume"
		}
	case "StatefulSet":
		var d *appsv1.StatefulSet
		if d, err = apps.StatefulSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return s, err
		}
		s.template, s.rolling = d.Spec.Template, d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas
		if u := d.Spec.UpdateStrategy; u.Type == appsv1.OnDeleteStatefulSetStrategyType {
			s.never = onDelete
		} else if u.RollingUpdate != nil && u.RollingUpdate.Partition != nil && *u.RollingUpdate.Partition > 0 {
			s.never = fmt.Sprintf("the StatefulSet has a partition: its pods below %d stay as they are", *u.RollingUpdate.Partition)
		}
	case "DaemonSet":
		var d *appsv1.DaemonSet
		if d, err = apps.DaemonSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{}); err != nil {
			return s, err
		}
		s.template, s.rolling = d.Spec.Template, d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedNumberScheduled < d.Status.DesiredNumberScheduled
		if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			s.never = onDelete
		}
	case "":
		s.never = "no workload recreates it: delete it, and apply its manifest again"
	case "Job":
		s.never = "a Job's pod is not replaced: wait for its end, or delete it and the Job makes another"
	default:
		s.never = fmt.Sprintf("a %s is not restarted by a change of its template's annotations: delete the pod, and it makes another", w.kind)
	}
	if _, injected := s.template.Annotations[contract.Status]; injected && s.never == "" {
		s.never = "the template itself was injected: outrider uninject -f its manifest, and apply that"
	}
	return s, err
}

const onDelete = "the update strategy is OnDelete: delete the pod, and its workload makes another"

// underWay reports whether a restart is in progress that will replace all pods; newest is the creation time of the
// newest pod.
func (s state) underWay(newest time.Time) bool {
	at, err := time.Parse(time.RFC3339, s.template.Annotations[restartedAt])
	return err == nil && s.rolling && at.After(newest)
}

// restartedAt is the annotation that "kubectl rollout restart" sets.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// restart makes a workload replace its pods, as "kubectl rollout restart" does.
func (o Options) restart(ctx context.Context, w workload) (err error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{restartedAt: time.Now().UTC().Format(time.RFC3339)}}}}})
	if err != nil {
		return err
	}
	apps, how := o.Core.AppsV1(), metav1.PatchOptions{FieldManager: "outrider"}
	switch w.kind {
	case "Deployment":
		_, err = apps.Deployments(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, how)
	case "StatefulSet":
		_, err = apps.StatefulSets(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, how)
	case "DaemonSet":
		_, err = apps.DaemonSets(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, how)
	}
	return err
}
