package inject

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Volumes of the proxy, and where the agent reads and writes (internal/agent/config).
const (
	workVolume = "outrider-work"
	infoVolume = "outrider-podinfo"
	tokenName  = "outrider-token"
	rootVolume = "outrider-root"
	bootVolume = "outrider-bootstrap"

	workDir  = "/etc/outrider/proxy"
	infoDir  = "/etc/outrider/pod"
	tokenDir = "/var/run/secrets/tokens"
	rootDir  = "/var/run/secrets/outrider"
	bootDir  = "/etc/outrider/custom-bootstrap"
	bootFile = "custom_bootstrap.json" // Istio's
)

// tokenAudience and tokenSeconds are Istio's, so that another CA behind the same service
// accepts the token.
const (
	tokenAudience = "istio-ca"
	tokenSeconds  = 43200
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
	level := strings.TrimPrefix(pick(agentLogKey, "", "info"), "default:")
	if strings.ContainsAny(level, ",:") {
		in.warn("annotation %s: the agent has one level for all; %q counts as info", agentLogKey, level)
		level = "info"
	}
	return []string{"proxy", "sidecar",
		"--domain", "$(POD_NAMESPACE).svc." + pick("", v.ClusterDomain, "cluster.local"),
		"--proxyLogLevel=" + pick(logKey, v.LogLevel, "warning"),
		"--proxyComponentLogLevel=" + pick(componentLogKey, v.ComponentLogLevel, "misc:error"),
		"--log-level=" + level,
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

func (in *injection) proxyMounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: workVolume, MountPath: workDir},
		{Name: infoVolume, MountPath: infoDir, ReadOnly: true},
		{Name: tokenName, MountPath: tokenDir, ReadOnly: true},
		{Name: rootVolume, MountPath: rootDir, ReadOnly: true},
	}
	if in.pod.Annotations[bootstrapKey] != "" {
		out = append(out, corev1.VolumeMount{Name: bootVolume, MountPath: bootDir, ReadOnly: true})
	}
	var mounts map[string]corev1.VolumeMount
	if text, ok := in.pod.Annotations[mountKey]; ok && json.Unmarshal([]byte(text), &mounts) == nil {
		for _, name := range slices.Sorted(maps.Keys(mounts)) {
			m := mounts[name]
			m.Name = name
			out = append(out, m)
		}
	}
	return out
}

// addVolumes adds those of the proxy. A volume of the user with one of the names stays.
func (in *injection) addVolumes() {
	seconds, mode := int64(tokenSeconds), corev1.DownwardAPIVolumeFile{}
	field := func(path, name string) corev1.DownwardAPIVolumeFile {
		f := mode
		f.Path, f.FieldRef = path, &corev1.ObjectFieldSelector{FieldPath: name}
		return f
	}
	root := in.o.RootCA
	if root == "" {
		root = "outrider-ca-root-cert"
	}
	configMap := func(name string) *corev1.ConfigMapVolumeSource {
		return &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	}
	list := []corev1.Volume{
		{Name: workVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: infoVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			field("labels", "metadata.labels"), field("annotations", "metadata.annotations")}}}},
		{Name: tokenName, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: tokenAudience, ExpirationSeconds: &seconds, Path: tokenName}}}}}},
		{Name: rootVolume, VolumeSource: corev1.VolumeSource{ConfigMap: configMap(root)}},
	}
	if name := in.pod.Annotations[bootstrapKey]; name != "" {
		list = append(list, corev1.Volume{Name: bootVolume, VolumeSource: corev1.VolumeSource{ConfigMap: configMap(name)}})
	}
	var own map[string]corev1.VolumeSource
	if text, ok := in.pod.Annotations[volumeKey]; ok && json.Unmarshal([]byte(text), &own) == nil {
		for _, name := range slices.Sorted(maps.Keys(own)) {
			list = append(list, corev1.Volume{Name: name, VolumeSource: own[name]})
		}
	}
	in.pod.Spec.Volumes = slices.Grow(in.pod.Spec.Volumes, len(list))
	for _, v := range list {
		if !slices.ContainsFunc(in.pod.Spec.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name }) {
			in.pod.Spec.Volumes = append(in.pod.Spec.Volumes, v)
		}
	}
}
