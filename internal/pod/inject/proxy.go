package inject

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// proxyContainer is outrider-proxy, with what a user's own container of that name says.
func (in *injection) proxyContainer(sidecar bool) (corev1.Container, error) {
	s := in.settings
	env, err := in.environment(sidecar)
	if err != nil {
		return corev1.Container{}, err
	}
	c := corev1.Container{
		Name: proxyName, Image: s.image, ImagePullPolicy: s.pull,
		Args: in.proxyArgs(),
		Env:  env,
		Ports: []corev1.ContainerPort{
			{Name: "http-envoy-prom", ContainerPort: prometheusPort, Protocol: corev1.ProtocolTCP},
			{Name: "http-ready", ContainerPort: readinessPort, Protocol: corev1.ProtocolTCP},
		},
		Resources:                *s.resources.DeepCopy(),
		SecurityContext:          in.proxySecurity(),
		VolumeMounts:             in.proxyMounts(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Lifecycle:                in.o.Values.Global.Proxy.Lifecycle.DeepCopy(),
	}
	if s.probes {
		c.ReadinessProbe = in.readiness()
	}
	if sidecar {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		if in.pod.Annotations[releaseKey] == "probe" {
			c.StartupProbe = in.startupProbe()
		}
	} else if v, ok := in.pod.Annotations[releaseKey]; ok {
		in.idle(releaseKey, "the proxy is no native sidecar")
		in.note("annotation %s: %s has no effect: the proxy is no native sidecar", releaseKey, v)
	}
	own, ok := in.own[proxyName]
	if !ok {
		return c, nil
	}
	return merged(c, own)
}

func (in *injection) proxyArgs() []string {
	v, a := in.o.Values.Global.Proxy, in.pod.Annotations
	pick := func(key, mesh, usual string) string {
		if s, ok := a[key]; ok {
			return s
		}
		if mesh != "" {
			return mesh
		}
		return usual
	}
	return []string{"proxy", "sidecar",
		"--domain", "$(POD_NAMESPACE).svc." + pick("", v.ClusterDomain, "cluster.local"),
		"--proxyLogLevel=" + pick(logKey, v.LogLevel, "warning"),
		"--proxyComponentLogLevel=" + pick(componentLogKey, v.ComponentLogLevel, "misc:error"),
		"--log-level=" + strings.TrimPrefix(pick(agentLogKey, "", "info"), "default:"),
	}
}

// healthy asks the readiness that does not depend on the app.
func healthy() corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(readinessPort)}}
}

// readiness has Istio's times, of the annotations, else of the values.
func (in *injection) readiness() *corev1.Probe {
	v := in.o.Values.Global.Proxy
	set := func(name string, mesh *int32, usual int32) int32 {
		if text, ok := in.pod.Annotations[readiness+name]; ok {
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
		PeriodSeconds:       max(set("periodSeconds", v.ReadinessPeriodSeconds, 15), 1),
		FailureThreshold:    max(set("failureThreshold", v.ReadinessFailureThreshold, 4), 1),
		TimeoutSeconds:      3,
	}
}

func (in *injection) startupProbe() *corev1.Probe {
	failures := in.o.Values.Global.Proxy.StartupProbe.FailureThreshold
	if failures <= 0 {
		failures = 600
	}
	return &corev1.Probe{ProbeHandler: healthy(), PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: failures}
}

// proxySecurity is the least that the proxy can do with.
func (in *injection) proxySecurity() *corev1.SecurityContext {
	no, yes, uid, gid := false, true, in.settings.uid, in.settings.gid
	out := &corev1.SecurityContext{
		RunAsUser: &uid, RunAsGroup: &gid, RunAsNonRoot: &yes,
		Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: in.seccomp(),
	}
	root := int64(0)
	if in.settings.mode == tproxy {
		out.RunAsUser, out.RunAsNonRoot = &root, &no
		out.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	if in.pod.Annotations[bindKey] == "true" {
		out.RunAsUser, out.RunAsNonRoot = &root, &no
		out.Capabilities.Add = append(out.Capabilities.Add, "NET_BIND_SERVICE")
	}
	return out
}

func (in *injection) seccomp() *corev1.SeccompProfile {
	if p := in.o.Values.Global.Proxy.SeccompProfile; p != nil {
		return p.DeepCopy()
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}
