package request

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/test/mutants"
)

func TestExcluded(t *testing.T) {
	const our, istios = "outrider.dev/inject", "sidecar.istio.io/inject"
	const windows = "the pod is for Windows nodes; the proxy and the capture are for Linux"
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		spec                corev1.PodSpec
		want                string
	}{
		"may be injected":            {labels: map[string]string{"a": "b"}},
		"declined":                   {labels: map[string]string{istios: "false"}, want: `label sidecar.istio.io/inject is "false"`},
		"our label goes first":       {labels: map[string]string{our: "false", istios: "true"}, want: `label outrider.dev/inject is "false"`},
		"an annotation declines":     {annotations: map[string]string{istios: "false"}, want: `annotation sidecar.istio.io/inject is "false"`},
		"labels before annotations":  {labels: map[string]string{istios: ""}, annotations: map[string]string{our: "false"}},
		"neither \"true\" nor false": {labels: map[string]string{istios: "no"}},
		"on the node's network":      {spec: corev1.PodSpec{HostNetwork: true}, want: "the pod has hostNetwork: true, and what is captured there is the node's traffic"},
		"of Windows":                 {spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Windows}}, want: windows},
		"of Windows, by selector":    {spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/os": "windows"}}, want: windows},
		"of Linux":                   {spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Linux}}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels, Annotations: test.annotations}, Spec: test.spec}
		if got := Excluded(pod); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestEveryMutantOfExclusionIsNoticed(t *testing.T) {
	mutants.Run(t, "TestExcluded", map[string]mutants.Mutant{
		"hostNetwork is injected":             {File: "excluded.go", From: `pod.Spec.HostNetwork`, To: `false`},
		"Windows by os is injected":           {File: "excluded.go", From: `pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`, To: `pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`},
		"Windows by nodeSelector is injected": {File: "excluded.go", From: `pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"`, To: `false`},
		"Linux by os is not injected":         {File: "excluded.go", From: `pod.Spec.OS.Name == corev1.Windows`, To: `true`},
		"Istio's label goes before ours":      {File: "excluded.go", From: `[]string{contract.OwnInjectLabel, contract.InjectLabel}`, To: `[]string{contract.InjectLabel, contract.OwnInjectLabel}`},
		"a pod that declines is not excluded": {File: "excluded.go", From: `value == "false"`, To: `false`},
	})
}
