package demo

import (
	_ "embed"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// An Act is one run of the demo's pod, with a mechanism by which the app waits for the proxy.
type Act struct {
	Title string
	Lead  string // the text below the title

	Order startup.Mechanism // mechanism by which the app waits for the proxy; empty: it does not wait
	Park  bool              // connections that are made before the proxy is ready wait for it
	Slow  bool              // the proxy needs [proxyDelay] longer until it is ready
	Job   bool              // the app does some work and exits
	Cause finding.Code      // the finding that the diagnosis must have; empty if it must have none
}

// Acts lists the acts of the demo in order.
var Acts = []Act{
	{Title: "the race", Slow: true, Cause: "startup-race",
		Lead: "No order, no parking. The proxy is ready after five seconds, as one that fetches a large mesh first; the app does not wait."},
	{Title: "hold", Order: startup.Hold, Park: true,
		Lead: "The proxy comes first in the list, and its postStart hook blocks until it is ready."},
	{Title: "native sidecar", Order: startup.Native, Park: true,
		Lead: "The proxy is a restartable init container: the kubelet starts the app when it is ready."},
	{Title: "gate", Order: startup.Gate, Park: true,
		Lead: "The app's command waits behind a gate, which opens in the moment at which the proxy is ready."},
	{Title: "parking alone", Park: true, Slow: true,
		Lead: "No order, and a proxy as slow as in the first act. The app's early connection waits in the kernel."},
	{Title: "a job", Order: startup.Gate, Park: true, Job: true,
		Lead: "The app does its work and ends. The proxy ends after it, and the pod has succeeded."},
}

//go:embed pod.yaml
var podText []byte

const (
	appName   = "awesome-app"
	proxyName = contract.ProxyContainer
	initName  = contract.InitContainer
)

// pod returns the pod of an act, and the plan with which its start is compared.
func (a Act) pod(number int) (*corev1.Pod, startup.Plan, error) {
	var pod corev1.Pod
	if err := manifest.DecodeStrict(podText, &pod); err != nil {
		return nil, startup.Plan{}, fmt.Errorf("the demo's own pod: %w", err)
	}
	pod.Name = fmt.Sprintf("awesome-%d", number)
	if !a.Park {
		setEnv(&pod, initName, "PARK", "off")
		setEnv(&pod, proxyName, "OUTRIDER_STANDBY", "off")
	}
	if a.Slow {
		delay(&pod.Spec.Containers[1])
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
		return &pod, plan, nil // nothing enforces the edge; it is only the expectation that the start violates
	}
	written, err := podspec.Write(&pod, plan, "outrider-proxy")
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

// proxyDelay is the time by which a slow proxy is delayed. Within this time the app fails twice: at its start,
// and at the immediate restart by the kubelet. Its third start finds a ready proxy, because the kubelet's
// back-off delays that start by ten seconds.
const proxyDelay = 5 * time.Second

// delay makes a container sleep for proxyDelay before its command.
func delay(c *corev1.Container) {
	script := fmt.Sprintf(`sleep %g; exec "$@"`, proxyDelay.Seconds())
	c.Command = append([]string{"sh", "-c", script, "sh"}, c.Command...)
}

// setEnv sets an environment variable of a container or init container.
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
