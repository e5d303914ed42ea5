package demo

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// An Act is one way to start the same pod.
type Act struct {
	Title string
	Tells string // one sentence before the curtain

	Order startup.Mechanism // how the app waits for the proxy; empty: not at all
	Park  bool              // connections that come too early wait
	Full  bool              // the proxy is told the whole mesh before it is ready
	Job   bool              // the app does some work and ends
}

// Acts is the story.
var Acts = []Act{
	{Title: "the race", Full: true,
		Tells: "No order, no parking. The proxy learns the whole mesh first, as most do; the app does not wait."},
	{Title: "hold", Order: startup.Hold, Park: true,
		Tells: "The proxy comes first in the list, and its postStart hook blocks until it is ready."},
	{Title: "native sidecar", Order: startup.Native, Park: true,
		Tells: "The proxy is a restartable init container: the kubelet starts the app when it is ready."},
	{Title: "gate", Order: startup.Gate, Park: true,
		Tells: "The app's command waits behind a gate, which opens in the moment at which the proxy is ready."},
	{Title: "parking alone", Park: true, Full: true,
		Tells: "No order, and a proxy as slow as in the first act. What the app asks for too early waits in the kernel."},
	{Title: "a job", Order: startup.Gate, Park: true, Job: true,
		Tells: "The app does its work and ends. The proxy ends after it, and the pod has succeeded."},
}

//go:embed pod.yaml
var manifest []byte

const (
	appName   = "awesome-app"
	proxyName = podspec.OurProxy
	initName  = "outrider-init"
)

// pod is the pod of an act, with the plan that its start is compared with.
func (a Act) pod(number int) (*corev1.Pod, startup.Plan, error) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(manifest, &pod); err != nil {
		return nil, startup.Plan{}, fmt.Errorf("the demo's own pod: %w", err)
	}
	pod.Name = fmt.Sprintf("awesome-%d", number)
	if !a.Park {
		setEnv(&pod, initName, "PARK", "off")
		setEnv(&pod, proxyName, "OUTRIDER_STANDBY", "off")
	}
	if a.Full {
		setEnv(&pod, proxyName, "OUTRIDER_PUSH", "full")
	}
	if a.Job {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		app := &pod.Spec.Containers[0]
		app.Args = append(app.Args, "--calls", "20")
		app.ReadinessProbe = nil
	}
	reading, err := podspec.Read(&pod)
	if err != nil {
		return nil, startup.Plan{}, err
	}
	plan := reading.Plan()
	edge := startup.Edge{From: proxyName, To: appName, After: startup.Healthy, By: a.Order}
	plan.Edges = append(plan.Edges, edge)
	if a.Order == "" {
		return &pod, plan, nil // what nobody enforces is what it is compared with
	}
	written, err := podspec.Write(&pod, plan, podspec.Options{Image: "outrider-proxy"})
	if err != nil {
		return nil, plan, fmt.Errorf("writing the order into the pod: %w", err)
	}
	if a.Order == startup.Native {
		setEnv(written, proxyName, "OUTRIDER_ORDERED_STOP", "true")
	}
	reading, err = podspec.Read(written)
	if err != nil {
		return nil, plan, err
	}
	return written, reading.Plan(), nil
}

// setEnv sets a variable of a container, wherever in the pod it is.
func setEnv(pod *corev1.Pod, container, name, value string) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name != container {
				continue
			}
			for j := range list[i].Env {
				if list[i].Env[j].Name == name {
					list[i].Env[j].Value = value
					return
				}
			}
			list[i].Env = append(list[i].Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
}
