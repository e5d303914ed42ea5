package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane"
	"outrider.dev/internal/doctor/diagnoser"
)

// One of two replicas diagnoses pods, with the chart's permissions. It writes an Event for a restart and one for a
// slow start, increases the Event's count at the next restart, and counts the causes in a metric. When this replica
// stops, the other takes over, and does not report the same again. A replica without --diagnose has no such metric.
//
// The pods are not scheduled. The test writes their statuses, from which the causes follow.
func diagnosesAreEvents(t *testing.T) {
	w := enterWorld(t)
	w.withoutAuthority(t)
	w.CoordinationV1().Leases(own).Delete(t.Context(), contract.DiagnosisLease, metav1.DeleteOptions{})
	t.Cleanup(func() {
		w.RbacV1().ClusterRoleBindings().Delete(context.Background(), "outriderd-diagnosis", metav1.DeleteOptions{})
		w.RbacV1().ClusterRoles().Delete(context.Background(), "outriderd-diagnosis", metav1.DeleteOptions{})
	})
	w.namespace(t, "diagnosed", nil)
	diagnoses := func(o *controlplane.Options) {
		o.Diagnoser = diagnoser.New(diagnoser.Options{Core: o.Cluster.Core(), Slow: time.Second, Instance: o.Replica, Log: o.Log, Note: o.Cluster.Note})
	}
	lines := []*gap{newGap(t, w), newGap(t, w)}
	all := []*replica{w.replicaWith(t, contract.AuthoritySecret, diagnoses, lines[0].through).serves(t), w.replicaWith(t, contract.AuthoritySecret, diagnoses, lines[1].through).serves(t)}
	without := w.replica(t, contract.AuthoritySecret).serves(t)

	w.unscheduled(t, "slow")
	w.unscheduled(t, "restarts")
	w.status(t, "slow", `"phase":"Pending","conditions":[%s,{"type":"Ready","status":"False"}],"containerStatuses":[{"name":"app","image":"none","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff","message":"not found"}}}]`)
	restarted := func(n int) {
		w.status(t, "restarts", fmt.Sprintf(`"phase":"Running","conditions":[%%s,{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"app","image":"none","imageID":"","ready":true,"restartCount":%d,"state":{"running":{"startedAt":"%[2]s"}},"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":"%[2]s","finishedAt":"%[2]s"}}}]`,
			n, time.Now().UTC().Format(time.RFC3339)))
	}
	restarted(1)
	events := func() string {
		return kubectl(t, "", "get", "events", "-n", "diagnosed", "--field-selector=reportingComponent=outriderd", "--sort-by=.involvedObject.name",
			`--output=jsonpath={range .items[*]}{.involvedObject.name} {.involvedObject.fieldPath} {.reason} {.count}: {.message}{"\n"}{end}`)
	}
	is := func(times int) {
		t.Helper()
		want := fmt.Sprintf("restarts spec.containers{app} OutOfMemory %d: app ran out of memory (out-of-memory: outrider diagnose restarts -n diagnosed)\n"+
			"slow spec.containers{app} ImageMissing 1: app has no image: none cannot be pulled (ImagePullBackOff) (image-missing: outrider diagnose slow -n diagnosed)\n", times)
		until(t, want, func() bool { return events() == want }, func() string { return events() + logs(all...)() })
	}
	is(1)
	metric := func(r *replica, cause string, n int) bool {
		_, text := r.get(t, "/metrics")
		return strings.Contains(text, fmt.Sprintf("outriderd_diagnoses_total{cause=%q} %d\n", cause, n))
	}
	first, second := all[0], all[1]
	if !strings.Contains(first.log.String(), "this replica diagnoses pods") {
		first, second, lines[0] = second, first, lines[1]
	}
	until(t, "the causes are counted", func() bool {
		return metric(first, "out-of-memory", 1) && metric(first, "image-missing", 1) && metric(first, "startup-race", 0)
	}, logs(all...), all...)
	if !metric(second, "out-of-memory", 0) || strings.Contains(second.log.String(), "this replica diagnoses pods") {
		t.Errorf("both replicas diagnose:\n%s", logs(all...)())
	}
	if _, text := without.get(t, "/metrics"); strings.Contains(text, "outriderd_diagnoses") || !strings.Contains(text, "outriderd_mesh_services") {
		t.Errorf("a replica without --diagnose has the metrics\n%s", text)
	}
	restarted(2)
	is(2)
	if text := logs(all...)(); strings.Contains(text, "forbidden") {
		t.Errorf("a permission is missing:\n%s", text)
	}

	lines[0].cut()
	until(t, "the other replica diagnoses", func() bool { return strings.Contains(second.log.String(), "this replica diagnoses pods") }, logs(all...), second)
	restarted(3)
	is(3)
	until(t, "it counts the last one alone", func() bool { return metric(second, "out-of-memory", 1) }, logs(all...), second)
	if !metric(second, "image-missing", 0) {
		t.Error("what was written is counted again")
	}
}

// unscheduled creates an injected pod in the namespace "diagnosed", which is never scheduled to a node.
func (w world) unscheduled(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{contract.Status: "{}"}},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	_, err := w.CoreV1().Pods("diagnosed").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
}

// status writes the status of a pod, in JSON. The verb %s in the text stands for the condition that the pod was
// scheduled just now.
func (w world) status(t *testing.T, name, text string) {
	t.Helper()
	scheduled := fmt.Sprintf(`{"type":"PodScheduled","status":"True","lastTransitionTime":%q}`, time.Now().UTC().Format(time.RFC3339))
	kubectl(t, "", "patch", "pod", name, "-n", "diagnosed", "--subresource=status", "--type=merge", `--patch={"status":{`+fmt.Sprintf(text, scheduled)+`}}`)
}
