package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/contract"
)

// A pod is kept if it was ready, its containers run on, and nothing in it has said that it is no
// longer ready.
func TestKept(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.Unix(1_000_000+int64(second), 0) }
	status := func(name string, ready bool, began int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(began)}}}
	}
	unready := func(since int) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(since)},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(since)}}
	}
	done := corev1.ContainerStatus{Name: "outrider-init", Ready: true, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	waits := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	proxy := contract.ProxyContainer
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"the kubelet was restarted": {corev1.PodStatus{Conditions: unready(60), InitContainerStatuses: []corev1.ContainerStatus{done},
			ContainerStatuses: []corev1.ContainerStatus{status("app", false, 1), status(proxy, false, 1)}}, true},
		"a native sidecar": {corev1.PodStatus{Conditions: unready(60), InitContainerStatuses: []corev1.ContainerStatus{done, status(proxy, false, 1)},
			ContainerStatuses: []corev1.ContainerStatus{status("app", false, 1)}}, true},
		"Istio's proxy": {corev1.PodStatus{Conditions: unready(60),
			ContainerStatuses: []corev1.ContainerStatus{status("app", true, 1), status(contract.IstioProxyContainer, false, 1)}}, true},
		"the application says that it is not ready": {corev1.PodStatus{Conditions: unready(60),
			ContainerStatuses: []corev1.ContainerStatus{status("app", false, 1), status(proxy, true, 1)}}, false},
		"it was never ready": {corev1.PodStatus{Conditions: unready(1),
			ContainerStatuses: []corev1.ContainerStatus{status("app", false, 2), status(proxy, false, 1)}}, false},
		"the application began again": {corev1.PodStatus{Conditions: unready(60),
			ContainerStatuses: []corev1.ContainerStatus{status("app", false, 61), status(proxy, false, 1)}}, false},
		"the application waits to be started again": {corev1.PodStatus{Conditions: unready(60),
			ContainerStatuses: []corev1.ContainerStatus{waits, status(proxy, false, 1)}}, false},
		"the proxy began again": {corev1.PodStatus{Conditions: unready(60),
			ContainerStatuses: []corev1.ContainerStatus{status("app", true, 1), status(proxy, false, 60)}}, false},
		"without a proxy": {corev1.PodStatus{Conditions: unready(60), ContainerStatuses: []corev1.ContainerStatus{status("app", false, 1)}}, false},
		"ready": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(60)}},
			ContainerStatuses: []corev1.ContainerStatus{status("app", true, 1), status(proxy, true, 1)}}, false},
		"without a status": {corev1.PodStatus{}, false},
		"a manifest's":     {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}, false},
	} {
		if got := kept(&tt.status); got != tt.want {
			t.Errorf("%s: kept %t, want %t", name, got, tt.want)
		}
	}
}
