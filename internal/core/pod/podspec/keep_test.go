package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// meshPod is a pod as injection leaves it beside another mesh's proxy: with that proxy's name, with parking, and with
// our preStop hook in the proxy if hook is not nil.
func meshPod(proxy string, hook []string, more ...corev1.Container) *corev1.Pod {
	c := corev1.Container{Name: proxy, Image: "proxy:1"}
	if hook != nil {
		command := append([]string{AgentPath, "pre-stop", "--name", proxy}, hook...)
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
	}
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: contract.InitContainer, Args: []string{"init", "--park-only"}}},
		Containers:     append(more, c),
	}}
}

func waitsFor(proxy, name string) corev1.Container {
	return corev1.Container{Name: name, Command: []string{AgentPath}, Args: []string{"gate", "--name", name, "--after", proxy + " is healthy", "--", "/" + name}}
}

func TestKeeps(t *testing.T) {
	t.Parallel()
	free, always := corev1.Container{Name: "free", Image: "free:1"}, corev1.ContainerRestartPolicyAlways
	sidecar := meshPod("istio-proxy", []string{}, free)
	sidecar.Spec.InitContainers = append(sidecar.Spec.InitContainers, corev1.Container{Name: "logs", RestartPolicy: &always})
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []Keep
	}{
		"no hook":          {meshPod("istio-proxy", nil, free), nil},
		"gates":            {meshPod("istio-proxy", []string{}, waitsFor("istio-proxy", "app"), waitsFor("other", "web")), []Keep{{Proxy: "istio-proxy"}}},
		"gate and sockets": {meshPod("linkerd-proxy", []string{"--sockets"}, waitsFor("linkerd-proxy", "app"), free), []Keep{{Proxy: "linkerd-proxy"}}},
		"hidden sockets":   {sidecar, []Keep{{Proxy: "istio-proxy", Unseen: []string{"free"}}}},
	} {
		if diff := cmp.Diff(c.want, Keeps(c.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUnkept(t *testing.T) {
	t.Parallel()
	template, unparked := meshPod("my-proxy", nil, corev1.Container{Name: "app"}), meshPod("istio-proxy", nil)
	template.Annotations = map[string]string{contract.IstioStatus: `{"containers":["my-proxy"]}`}
	unparked.Spec.InitContainers[0].Args = []string{"init"}
	byNode := meshPod("istio-proxy", nil)
	byNode.Spec.InitContainers = nil
	SetNodeWork(byNode, contract.NodeWork{Capture: []string{"--park-only"}})
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"hook":                    {meshPod("istio-proxy", []string{}), nil},
		"no hook":                 {meshPod("istio-proxy", nil), []string{"istio-proxy"}},
		"parking by the node":     {byNode, []string{"istio-proxy"}},
		"no parking":              {unparked, nil},
		"a template's":            {template, []string{"my-proxy"}},
		"nothing goes through it": {meshPod("cloud-sql-proxy", nil), nil},
		"an unknown container":    {meshPod("my-proxy", nil), nil},
	} {
		if diff := cmp.Diff(c.want, Unkept(c.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
