package inject

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/merge"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// proxyContainer returns the container outrider-proxy. Fields of the author's own container with that name
// override ours.
func proxyContainer(in input, s effective, sidecar bool, r *verdict.Report) (corev1.Container, error) {
	c := corev1.Container{
		Name: contract.ProxyContainer, Image: s.image, ImagePullPolicy: s.pull,
		Args:                     in.proxyArgs(s),
		Env:                      in.environment(s, sidecar),
		Ports:                    in.proxyPorts(r),
		Resources:                *s.resources.DeepCopy(),
		SecurityContext:          in.proxySecurity(s),
		VolumeMounts:             in.proxyMounts(s),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Lifecycle:                in.lifecycle(r),
	}
	if s.probes {
		c.ReadinessProbe = in.readiness()
	}
	if sidecar {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		if in.pod.Annotations[contract.NativeRelease] == "probe" {
			c.StartupProbe = in.startupProbe()
		}
	}
	own, ok := in.own.find(contract.ProxyContainer)
	if !ok {
		return c, nil
	}
	needed := c.SecurityContext
	c, err := merge.Container(c, own)
	if err != nil {
		return c, err
	}
	keepRoot(&c, needed, r)
	return c, nil
}

// proxyPorts returns the proxy's ports. If another port of the pod has the same name, the proxy's port gets no
// name, so that a Service with a named target port finds the author's port.
func (in input) proxyPorts(r *verdict.Report) []corev1.ContainerPort {
	out := []corev1.ContainerPort{
		{Name: "http-envoy-prom", ContainerPort: contract.PrometheusPort, Protocol: corev1.ProtocolTCP},
		{Name: "http-ready", ContainerPort: contract.ReadinessPort, Protocol: corev1.ProtocolTCP},
	}
	for _, c := range slices.Concat(in.pod.Spec.InitContainers, in.pod.Spec.Containers, in.own.init, in.own.plain) {
		for _, p := range c.Ports {
			for i := range out {
				if p.Name == out[i].Name && p.Name != "" && p.ContainerPort != out[i].ContainerPort {
					r.Note("port %d of %s has no name, since port %d of %s is %s", out[i].ContainerPort, contract.ProxyContainer, p.ContainerPort, c.Name, p.Name)
					out[i].Name = ""
				}
			}
		}
	}
	return out
}

// lifecycle returns the hooks that the values set. A sleep is shortened to the pod's grace period, because the
// API server refuses a longer one.
func (in input) lifecycle(r *verdict.Report) *corev1.Lifecycle {
	out := in.o.Values.Global.Proxy.Lifecycle.DeepCopy()
	if out == nil {
		return nil
	}
	most := graceOf(in.pod)
	for _, h := range []**corev1.LifecycleHandler{&out.PostStart, &out.PreStop} {
		if *h == nil || (*h).Sleep == nil || (*h).Sleep.Seconds <= most {
			continue
		}
		r.Warn("value global.proxy.lifecycle: a hook sleeps for %d s, the pod's grace period, and not for %d s", most, (*h).Sleep.Seconds)
		if (*h).Sleep.Seconds = most; most == 0 {
			*h = nil
		}
	}
	return out
}

func (in input) proxyArgs(s effective) []string {
	v, a := in.o.Values.Global.Proxy, in.pod.Annotations
	pick := func(key, mesh, usual string) string {
		if s, ok := a[key]; ok {
			return s
		}
		return cmp.Or(mesh, usual)
	}
	return []string{"proxy", "sidecar",
		"--domain", "$(POD_NAMESPACE).svc." + cmp.Or(v.ClusterDomain, "cluster.local"),
		"--proxyLogLevel=" + pick(settings.LogKey, v.LogLevel, "warning"),
		"--proxyComponentLogLevel=" + pick(settings.ComponentLogKey, v.ComponentLogLevel, "misc:error"),
		"--log-level=" + s.agentLevel,
	}
}

// healthy returns a probe of the proxy's own readiness, which does not depend on the app.
func healthy() corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: contract.ReadyPath, Port: intstr.FromInt32(contract.ReadinessPort)}}
}

// readyPeriod is the period of the proxy's readiness probe, in seconds. It is short because a kubelet that was
// restarted considers every pod not ready until its probe has succeeded, and distributes the first probes over
// their period. Istio's period is 15 seconds.
const readyPeriod = 1

// readiness returns the proxy's readiness probe. Its times come from the annotations, else from the values, else
// from our defaults.
func (in input) readiness() *corev1.Probe {
	v := in.o.Values.Global.Proxy
	set := func(name string, mesh *int32, usual int32) int32 {
		if text, ok := in.pod.Annotations[contract.IstioReadiness+name]; ok {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				return int32(n)
			}
		}
		if mesh != nil {
			return *mesh
		}
		return usual
	}
	return &corev1.Probe{
		ProbeHandler:        healthy(),
		InitialDelaySeconds: set("initialDelaySeconds", v.ReadinessInitialDelaySeconds, 0),
		PeriodSeconds:       max(set("periodSeconds", v.ReadinessPeriodSeconds, readyPeriod), 1),
		FailureThreshold:    max(set("failureThreshold", v.ReadinessFailureThreshold, 4), 1),
		TimeoutSeconds:      3,
	}
}

func (in input) startupProbe() *corev1.Probe {
	failures := in.o.Values.Global.Proxy.StartupProbe.FailureThreshold
	if failures <= 0 {
		failures = 600
	}
	return &corev1.Probe{ProbeHandler: healthy(), PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: failures}
}

// noteReadiness adds a note about the cost of a readiness period that is more than twice our default.
func noteReadiness(pod *corev1.Pod, r *verdict.Report) {
	c := containers.Find(pod, contract.ProxyContainer)
	if c == nil || c.ReadinessProbe == nil {
		return
	}
	if n := c.ReadinessProbe.PeriodSeconds; n > 2*readyPeriod {
		r.Note("%s is probed for readiness every %d s: a restart of the kubelet takes the pod out of its Services for up to %[2]d s", contract.ProxyContainer, n)
	}
}
