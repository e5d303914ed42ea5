package order

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// If the proxy is a regular container, the mechanisms of the pod's edges show whether the proxy must be a
// sidecar instead. Such pods, and no others, are arranged a second time.
func TestPodsAreArrangedAgainForASidecar(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     string
		sidecar bool
		times   int
	}{
		"gates suffice":                {"{spec: {containers: [{name: app, image: a, command: [/app]}]}}", false, 1},
		"one command is unknown":       {"{spec: {containers: [{name: app, image: a, command: [/app]}, {name: web, image: w}]}}", true, 2},
		"one has to be process 1":      {"{spec: {containers: [{name: app, image: a, command: [/sbin/init]}]}}", true, 2},
		"an init container is waiting": {"{metadata: {annotations: {outrider.dev/depends-on.one: outrider-proxy}}, spec: {initContainers: [{name: one, image: a, command: [/one]}], containers: [{name: app, image: a, command: [/app]}]}}", true, 2},
		"a sidecar is requested":       {"{metadata: {annotations: {outrider.dev/start: native}}, spec: {containers: [{name: app, image: a}]}}", true, 1},
		"a hold is requested":          {"{metadata: {annotations: {outrider.dev/start: hold}}, spec: {containers: [{name: app, image: a}]}}", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(tt.pod), &pod); err != nil {
				t.Fatal(err)
			}
			times := 0
			p, err := Of(Request{Pod: &pod, Kubernetes: 34, Native: "auto", Interrupted: func() error { return nil },
				Proxy: func(sidecar bool, _ *verdict.Report) (corev1.Container, error) {
					times++
					c := corev1.Container{Name: contract.ProxyContainer, Image: "proxy"}
					if sidecar {
						c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
					}
					return c, nil
				}}, &verdict.Report{})
			if err != nil {
				t.Fatal(err)
			}
			if c := containers.Find(p.Pod, contract.ProxyContainer); (c.RestartPolicy != nil) != tt.sidecar || times != tt.times {
				t.Errorf("a sidecar: %t, after %d arrangements; want %t, %d", c.RestartPolicy != nil, times, tt.sidecar, tt.times)
			}
		})
	}
}

// The API server refuses two containers of one name, but without an order injection does not look at names.
func TestContainersOfOneNameKeepTheirImages(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contract.Start: "off"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a"}, {Name: "app", Image: "b"}}}}
	p, err := Of(Request{Pod: pod, Kubernetes: 34, Interrupted: func() error { return nil },
		Commands: map[string]imagecmd.Command{"a": {Entrypoint: []string{"/a"}}, "b": {Entrypoint: []string{"/b"}}}}, &verdict.Report{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod.Spec.Containers, p.Pod.Spec.Containers); diff != "" {
		t.Errorf("(-given +planned):\n%s", diff)
	}
}
