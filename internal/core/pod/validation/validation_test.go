package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/pods"
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string
	}{
		"all is well": {`{restartPolicy: OnFailure, terminationGracePeriodSeconds: 0, initContainers: [{name: a, restartPolicy: Always,
			startupProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 1}}],
			containers: [{name: b, readinessProbe: {httpGet: {port: web}, successThreshold: 3}, livenessProbe: {grpc: {port: 80}},
			lifecycle: {postStart: {sleep: {seconds: 0}}, preStop: {tcpSocket: {port: 65535}}}}]}`, nil},
		"words": {`{restartPolicy: always, initContainers: [{name: a, restartPolicy: Perhaps}], containers: [{name: b}]}`, []string{
			`spec.restartPolicy: "always"; want Always, OnFailure, Never`,
			`spec.initContainers[0].restartPolicy: "Perhaps"; want Always, OnFailure, Never`}},
		"numbers": {`{terminationGracePeriodSeconds: -3, containers: [{name: b, startupProbe: {exec: {command: [x]}, initialDelaySeconds: -1,
			timeoutSeconds: -1, periodSeconds: -1, successThreshold: 2, failureThreshold: -1, terminationGracePeriodSeconds: 0}}]}`, []string{
			"spec.terminationGracePeriodSeconds: -3; want 0 or more",
			"spec.containers[0].startupProbe.initialDelaySeconds: -1; want 0 or more",
			"spec.containers[0].startupProbe.timeoutSeconds: -1; want 0 or more",
			"spec.containers[0].startupProbe.periodSeconds: -1; want 0 or more",
			"spec.containers[0].startupProbe.failureThreshold: -1; want 0 or more",
			"spec.containers[0].startupProbe.successThreshold: 2; want 1: only a readiness probe has another one",
			"spec.containers[0].startupProbe.terminationGracePeriodSeconds: 0; want 1 or more"}},
		"ports": {`{containers: [{name: b, readinessProbe: {httpGet: {port: 0}, terminationGracePeriodSeconds: 3}, livenessProbe: {tcpSocket: {port: 99999}},
			startupProbe: {grpc: {port: -1}}}]}`, []string{
			"spec.containers[0].startupProbe.grpc.port: -1; want 1 to 65535",
			"spec.containers[0].livenessProbe.tcpSocket.port: 99999; want 1 to 65535",
			"spec.containers[0].readinessProbe.httpGet.port: 0; want 1 to 65535",
			"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: is set; want none: a readiness probe ends nothing"}},
		"handlers": {`{containers: [{name: b, readinessProbe: {}, lifecycle: {postStart: {exec: {command: [x]}, httpGet: {port: 1}}, preStop: {exec: {}}}}]}`, []string{
			"spec.containers[0].readinessProbe: has 0 handlers; want one of exec, httpGet, tcpSocket, grpc",
			"spec.containers[0].lifecycle.postStart: has 2 handlers; want one of exec, httpGet, sleep",
			"spec.containers[0].lifecycle.preStop.exec.command: is empty; want a command"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			if err := Check(pods.Parse(t, "spec: "+strings.ReplaceAll(tt.spec, "\t", " "))); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Containers that injection adds are not counted.
func TestTooManyContainersAreRefused(t *testing.T) {
	var p corev1.Pod
	for i := range MaxContainers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
	}
	p.Spec.InitContainers = []corev1.Container{{Name: contract.InitContainer}, {Name: contract.ProxyContainer}}
	if err := Check(&p); err != nil {
		t.Error(err)
	}
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "one-more"})
	const want = "spec.containers: 301 containers are more than are read; want at most 300"
	if err := Check(&p); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
