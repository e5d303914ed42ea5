package follow

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/result"
)

func report(v result.Verdict, state result.StartState, took time.Duration, codes ...string) result.Report {
	r := result.Report{Version: result.Version, Pod: "shop/web", Verdict: v, Sentence: "nothing is wrong", Start: &result.Start{State: state, Took: result.Elapsed{Time: took}}}
	for _, c := range codes {
		r.Findings = append(r.Findings, result.Finding{Code: finding.Code(c)})
		r.Sentence = "the application\x1b[2J\nended"
	}
	return r
}

func TestLines(t *testing.T) {
	for want, l := range map[string]Line{
		"shop/web ready after 3.2 s; nothing is wrong":      lineOf(report(result.Nothing, result.StartReady, 3200*time.Millisecond), time.Time{}),
		"shop/web not ready after 31 s; nothing is wrong":   lineOf(report(result.Nothing, result.StartNotReady, 31*time.Second), time.Time{}),
		"shop/web ready; nothing is wrong":                  lineOf(report(result.Nothing, result.StartReady, 0), time.Time{}),
		"shop/web nothing is wrong":                         lineOf(report(result.Nothing, result.StartEnded, time.Second), time.Time{}),
		`shop/web the application\x1b[2J ended (app-crash)`: lineOf(report(result.Found, result.StartNotReady, time.Second, "app-crash"), time.Time{}),
		`shop/web the application\x1b[2J ended (undecided)`: lineOf(report(result.Undecided, result.StartNotReady, time.Second, "a", "b"), time.Time{}),
		"ended: 3 pods diagnosed, 2 b, 1 a":                 {Summary: new(summary(3, 0, map[string]int{"a": 1, "b": 2}))},
	} {
		if diff := cmp.Diff(want, text(t, l)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Each line of the output is one JSON object, with the version of reports.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := lineOf(report(result.Found, result.StartNotReady, time.Second, "app-crash"), time.Time{}).Write(&b, true); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version, Pod, Code, Sentence string
		Report                       result.Report
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 || got.Version != result.Version || got.Pod != "shop/web" || got.Code != "app-crash" || len(got.Report.Findings) != 1 {
		t.Errorf("%s", b.String())
	}
}

func TestRolloutOf(t *testing.T) {
	three, two := int32(3), int32(2)
	meta := metav1.ObjectMeta{Generation: 2}
	deployment := func(seen int64, all, updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three}, Status: appsv1.DeploymentStatus{ObservedGeneration: seen, Replicas: all, UpdatedReplicas: updated, AvailableReplicas: available}}
	}
	set := func(kept *int32, current string, ready, updated int32) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &three, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: kept}}},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: ready, UpdatedReplicas: updated, CurrentRevision: current, UpdateRevision: "b"}}
	}
	job := func(conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Active: 1, Failed: 2, Conditions: conditions}}
	}
	for name, tt := range map[string]struct {
		object any
		want   rollout
	}{
		"a specification that is not seen": {deployment(1, 3, 3, 3), unseen},
		"older pods are to go":             {deployment(2, 4, 3, 3), waiting("1 pods of an older revision are left")},
		"newer pods are to come":           {deployment(2, 4, 2, 4), waiting("2 of 3 pods are of the newest revision")},
		"not available":                    {deployment(2, 3, 3, 2), waiting("2 of 3 pods are available")},
		"a Deployment":                     {deployment(2, 3, 3, 3), rollout{done: true, pods: 3}},
		"a StatefulSet, not ready":         {set(nil, "a", 2, 3), waiting("2 of 3 pods are ready")},
		"a StatefulSet, of before":         {set(nil, "a", 3, 1), waiting("1 of 3 pods are of the newest revision")},
		"a StatefulSet":                    {set(nil, "b", 3, 0), rollout{done: true, pods: 3}},
		"a partition":                      {set(&two, "a", 3, 1), rollout{done: true, pods: 3}},
		"a partition, of before":           {set(&two, "a", 3, 0), waiting("0 of 1 pods are of the newest revision")},
		"a DaemonSet": {&appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 2}},
			rollout{done: true, pods: 2}},
		"a DaemonSet, of before": {&appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 1, NumberAvailable: 2}},
			waiting("1 of 2 pods are of the newest revision")},
		"a ReplicaSet":           {&appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Replicas: 1, AvailableReplicas: 1}}, rollout{done: true, pods: 1}},
		"a Job that runs":        {job(), waiting("1 pods run, 0 succeeded, 2 failed")},
		"a Job that failed":      {job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}), rollout{done: true}},
		"a Job that is to fail":  {job(batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}), waiting("1 pods run, 0 succeeded, 2 failed")},
		"a Job that is complete": {job(batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}), rollout{done: true}},
	} {
		if got := rolloutOf(tt.object); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// small keeps the fields of a pod on which its state depends, and removes all others.
func TestSmall(t *testing.T) {
	p := restarted(ready(made("web", "clean")), 2)
	p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}
	p.Spec.Containers = []corev1.Container{{Name: "app", Command: []string{"app"}}}
	got, err := small(p)
	if err != nil {
		t.Fatal(err)
	}
	kept := got.(*corev1.Pod)
	if s := stateOf(p, true); s != stateOf(kept, true) || !s.ready || s.slow || s.trouble != "app 2 true;" {
		t.Errorf("%+v, kept %+v", s, stateOf(kept, true))
	}
	if len(kept.Spec.Containers)+len(kept.Labels) > 0 || kept.Status.ContainerStatuses[0].State.Waiting.Message != "" || keyOf(kept) != keyOf(p) {
		t.Errorf("%+v", kept)
	}
	starts := made("web", "clean")
	starts.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	if stateOf(starts, false).due() || !stateOf(starts, true).due() {
		t.Error("a pod that starts is to be diagnosed when it is slow, and not before")
	}
}
