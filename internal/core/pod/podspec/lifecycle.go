package podspec

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// Lifecycle returns the part of a pod that the kubelet's rules depend on: the containers with their restart
// policies, hooks and probes, and the grace period. The containers are in the order of [Read]. A field that
// the pod leaves out is 0, which means the API's default.
//
// It accepts any pod. A word that the API does not define, or a number that it would refuse, counts as left
// out.
func Lifecycle(pod *corev1.Pod) kubelet.Pod {
	out := kubelet.Pod{Restart: policy(string(pod.Spec.RestartPolicy)), Grace: podGrace(pod.Spec.TerminationGracePeriodSeconds)}
	for _, c := range carriers(pod) {
		one := kubelet.Container{Name: c.Name, NeverPull: c.ImagePullPolicy == corev1.PullNever,
			Startup: probe(c.StartupProbe), Liveness: probe(c.LivenessProbe), Readiness: probe(c.ReadinessProbe)}
		if IsStarted(c.Container) {
			one.Startup.Handler = kubelet.Gate
		}
		if HeldProbe(c.Container) != nil {
			one.Liveness.Handler = kubelet.Gate
		}
		if own := c.Container.RestartPolicy; own != nil {
			one.Restart = policy(string(*own))
		}
		if l := c.Lifecycle; l != nil {
			one.PostStart, one.PreStop = hookHandler(l.PostStart), hookHandler(l.PreStop)
			if one.PreStop == kubelet.Sleep {
				one.PreStopSleep = time.Duration(min(max(l.PreStop.Sleep.Seconds, 0), math.MaxInt32)) * time.Second
			}
		}
		if c.inInit() {
			out.Init = append(out.Init, one)
		} else {
			out.Containers = append(out.Containers, one)
		}
	}
	return out
}

func (c carrier) inInit() bool { return c.kind != startup.Plain }

func policy(word string) kubelet.RestartPolicy {
	switch p := kubelet.RestartPolicy(word); p {
	case kubelet.Always, kubelet.OnFailure, kubelet.Never:
		return p
	}
	return ""
}

// podGrace returns a pod's grace period. 0 in a pod means SIGKILL at once, while 0 in a kubelet.Pod means
// the default.
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
	return time.Duration(min(*given, int64(math.MaxInt32))) * time.Second // 68 years are enough, and do not overflow
}

func hookHandler(h *corev1.LifecycleHandler) kubelet.Handler {
	switch {
	case h == nil:
		return kubelet.NoHandler
	case h.Exec != nil:
		return kubelet.Exec
	case h.HTTPGet != nil:
		return kubelet.HTTPGet
	case h.TCPSocket != nil:
		return kubelet.TCPSocket
	case h.Sleep != nil:
		return kubelet.Sleep
	}
	return kubelet.NoHandler
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
