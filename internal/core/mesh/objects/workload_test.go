package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod counts as kept if it was ready and all its containers still run.
func TestKept(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.Unix(1_000_000+int64(second), 0) }
	runs := func(name string, began int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(began)}}}
	}
	ended := func(name string, ready bool, status int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Ready: ready, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status}}}
	}
	waits := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	status := func(ready corev1.ConditionStatus, since int, init []corev1.ContainerStatus, containers ...corev1.ContainerStatus) *corev1.PodStatus {
		return &corev1.PodStatus{InitContainerStatuses: init, ContainerStatuses: containers, Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: at(0)},
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: at(since)}}}
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	init := []corev1.ContainerStatus{ended("outrider-init", true, 0), runs("sidecar", 1)}
	for name, tt := range map[string]struct {
		status *corev1.PodStatus
		want   bool
	}{
		"it is no longer ready":    {status(no, 60, init, runs("app", 2)), true},
		"ready":                    {status(yes, 60, init, runs("app", 2)), false},
		"it was never ready":       {status(no, 1, init, runs("app", 2)), false},
		"in its first second":      {status(no, 2, init, runs("app", 2)), false},
		"one began again":          {status(no, 60, init, runs("a", 2), runs("b", 60)), false},
		"one waits":                {status(no, 60, init, runs("a", 2), waits), false},
		"one failed":               {status(no, 60, init, ended("app", false, 1)), false},
		"one has completed":        {status(no, 60, init, ended("app", false, 0)), false},
		"its sidecar began again":  {status(no, 60, []corev1.ContainerStatus{runs("sidecar", 60)}, runs("app", 2)), false},
		"no container is known":    {status(no, 60, nil), false},
		"without a status":         {&corev1.PodStatus{}, false},
		"a manifest with no times": {&corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: no}}, ContainerStatuses: []corev1.ContainerStatus{runs("app", 2)}}, false},
	} {
		if got := kept(tt.status); got != tt.want {
			t.Errorf("%s: kept %t, want %t", name, got, tt.want)
		}
	}
}

// A pod with a container named istio-proxy may be a gateway, which takes no mutual TLS: only the label of Istio's injector
// counts.
func TestProxied(t *testing.T) {
	for name, tt := range map[string]struct {
		container, mode string
		hostNetwork     bool
		want            bool
	}{
		"Outrider's":                      {container: "outrider-proxy", mode: "istio", want: true},
		"Outrider's, without a label":     {container: "outrider-proxy", want: true},
		"Outrider's, disabled":            {container: "outrider-proxy", mode: "disabled"},
		"Istio's sidecar":                 {container: "istio-proxy", mode: "istio", want: true},
		"Istio's gateway":                 {container: "istio-proxy"},
		"none":                            {container: "app"},
		"on its node's network":           {container: "outrider-proxy", mode: "istio", hostNetwork: true},
		"a gateway on its node's network": {container: "istio-proxy", hostNetwork: true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}, Spec: corev1.PodSpec{HostNetwork: tt.hostNetwork, Containers: []corev1.Container{{Name: tt.container}}}}
		if tt.mode != "" {
			p.Labels = map[string]string{"security.istio.io/tlsMode": tt.mode}
		}
		if got, err := Pod(p); err != nil || got.Proxied != tt.want {
			t.Errorf("%s: %+v, %v; want a proxy: %t", name, got, err, tt.want)
		}
	}
}
