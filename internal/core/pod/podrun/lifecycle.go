package podrun

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podspec"
)

// Lifecycle returns the part of a pod on which the kubelet's rules depend: the grace period, and the containers
// with their restart policies, hooks and probes. The containers are in the order of [podspec.Read]. A field that
// the pod does not set is 0, which means the API's default.
//
// Lifecycle accepts any pod. A value that the API server would refuse is treated like one that is not set.
func Lifecycle(pod *corev1.Pod) kubelet.Pod {
	out := kubelet.Pod{Restart: policy(string(pod.Spec.RestartPolicy)), Grace: podGrace(pod.Spec.TerminationGracePeriodSeconds)}
	for i := range pod.Spec.InitContainers {
		out.Init = append(out.Init, container(&pod.Spec.InitContainers[i]))
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, container(&pod.Spec.Containers[i]))
	}
	return out
}

func container(c *corev1.Container) kubelet.Container {
	out := kubelet.Container{Name: c.Name, NeverPull: c.ImagePullPolicy == corev1.PullNever,
		Startup: probe(c.StartupProbe), Liveness: probe(c.LivenessProbe), Readiness: probe(c.ReadinessProbe)}
	if podspec.IsStarted(c) {
		out.Startup.Handler = kubelet.Gate
	}
	if podspec.HeldProbe(c) != nil {
		out.Liveness.Handler = kubelet.Gate
	}
	if c.RestartPolicy != nil {
		out.Restart = policy(string(*c.RestartPolicy))
	}
	if l := c.Lifecycle; l != nil {
		out.PostStart, out.PreStop = hookHandler(l.PostStart), hookHandler(l.PreStop)
		out.PreStopSleep = podspec.PreStopSleep(c)
		if podspec.StaysUntilEnd(c) {
			out.PreStop = kubelet.Gate
		}
	}
	return out
}

// Unmodelled returns a sentence for each setting of a container that the models of the kubelet and of gates do not support.
func Unmodelled(pod *corev1.Pod) (out []string) {
	unkept := podspec.Unkept(pod)
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}} {
		for i, c := range list.containers {
			if slices.Contains(unkept, c.Name) {
				out = append(out, fmt.Sprintf("spec.%s[%d]: nothing keeps %s until the applications have ended, and connections to it are parked: what an application calls after it has left waits until SIGKILL, which is not in the answer",
					list.name, i, c.Name))
			}
			for n, rule := range c.RestartPolicyRules {
				out = append(out, fmt.Sprintf("spec.%s[%d].restartPolicyRules[%d]: %s of %s is not modelled: what it restarts, and in which order, is not in the answer",
					list.name, i, n, rule.Action, c.Name))
			}
		}
	}
	return out
}

func policy(word string) kubelet.RestartPolicy {
	switch p := kubelet.RestartPolicy(word); p {
	case kubelet.Always, kubelet.OnFailure, kubelet.Never:
		return p
	}
	return ""
}

// podGrace returns a pod's grace period. In a pod 0 means that SIGKILL follows at once, but in a kubelet.Pod 0
// means the default, so the result is then one nanosecond.
func podGrace(given *int64) time.Duration {
	if given != nil && *given <= 0 {
		return time.Nanosecond
	}
	return grace(given)
}

func grace(given *int64) time.Duration {
	if given == nil || *given < 0 {
		return 0
	}
	return time.Duration(min(*given, int64(math.MaxInt32))) * time.Second // 68 years at most, to avoid an overflow
}

func hookHandler(h *corev1.LifecycleHandler) kubelet.Handler {
	if h == nil {
		return kubelet.NoHandler
	}
	handler := probeHandler(corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket})
	if handler == kubelet.NoHandler && h.Sleep != nil {
		return kubelet.Sleep
	}
	return handler
}

func probe(p *corev1.Probe) kubelet.Probe {
	if p == nil {
		return kubelet.Probe{}
	}
	return kubelet.Probe{
		Handler:      probeHandler(p.ProbeHandler),
		InitialDelay: seconds(p.InitialDelaySeconds),
		Period:       seconds(p.PeriodSeconds),
		Timeout:      seconds(p.TimeoutSeconds),
		Successes:    int(max(p.SuccessThreshold, 0)),
		Failures:     int(max(p.FailureThreshold, 0)),
		Grace:        grace(p.TerminationGracePeriodSeconds),
	}
}

func seconds(n int32) time.Duration { return time.Duration(max(n, 0)) * time.Second }

func probeHandler(h corev1.ProbeHandler) kubelet.Handler {
	switch {
	case h.Exec != nil:
		return kubelet.Exec
	case h.HTTPGet != nil:
		return kubelet.HTTPGet
	case h.TCPSocket != nil:
		return kubelet.TCPSocket
	case h.GRPC != nil:
		return kubelet.GRPC
	}
	return kubelet.NoHandler
}
