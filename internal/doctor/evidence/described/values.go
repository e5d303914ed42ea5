package described

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var port = regexp.MustCompile(`(?:([-a-z0-9]+):)?(\d+)/(TCP|UDP|SCTP)(?: \(([-a-z0-9]+)\))?`)

// ports reads "8080/TCP, 9090/TCP (metrics)".
func (u *unit) ports(value string) {
	for _, m := range port.FindAllStringSubmatch(value, 100) {
		u.spec.Ports = append(u.spec.Ports, corev1.ContainerPort{Name: m[1] + m[4], ContainerPort: int32(number(m[2])), Protocol: corev1.Protocol(m[3])})
	}
}

// resource reads NAME: QUANTITY of the limits or the requests.
func (u *unit) resource(text string) {
	name, value, ok := strings.Cut(strings.TrimSpace(text), ":")
	q, err := resource.ParseQuantity(strings.TrimSpace(value))
	if !ok || err != nil {
		return
	}
	list := &u.spec.Resources.Limits
	if u.key == "Requests" {
		list = &u.spec.Resources.Requests
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceName(name)] = q
}

var (
	probeSettings = regexp.MustCompile(`(delay|timeout|period)=(\S+)|#(success|failure)=(\d+)`)
	probeAsks     = regexp.MustCompile(`^(http-get|tcp-socket|exec|grpc) (.*?)\s*(?:delay=|$)`)
)

// probe reads "http-get http://:8080/healthz delay=0s timeout=1s period=10s #success=1 #failure=3". It returns nil if
// it is none.
func probe(value string) *corev1.Probe {
	m := probeAsks.FindStringSubmatch(value)
	if m == nil {
		return nil
	}
	p := &corev1.Probe{}
	switch m[1] {
	case "http-get":
		u, err := url.Parse(m[2])
		if err != nil {
			return nil
		}
		p.HTTPGet = &corev1.HTTPGetAction{Host: u.Hostname(), Port: intstr.Parse(u.Port()), Path: u.RequestURI(), Scheme: corev1.URIScheme(strings.ToUpper(u.Scheme))}
	case "tcp-socket":
		host, port, _ := strings.Cut(m[2], ":")
		p.TCPSocket = &corev1.TCPSocketAction{Host: host, Port: intstr.Parse(port)}
	case "grpc":
		_, port, _ := strings.Cut(m[2], ":")
		p.GRPC = &corev1.GRPCAction{Port: int32(max(number(port), 0))}
	default:
		p.Exec = &corev1.ExecAction{Command: strings.Fields(strings.Trim(m[2], "[]"))}
	}
	for _, m := range probeSettings.FindAllStringSubmatch(value, 10) {
		d, _ := time.ParseDuration(m[2])
		switch seconds := int32(d / time.Second); m[1] + m[3] {
		case "delay":
			p.InitialDelaySeconds = seconds
		case "timeout":
			p.TimeoutSeconds = seconds
		case "period":
			p.PeriodSeconds = seconds
		case "success":
			p.SuccessThreshold = int32(number(m[4]))
		case "failure":
			p.FailureThreshold = int32(number(m[4]))
		}
	}
	return p
}

var (
	variable  = regexp.MustCompile(`^\s*([A-Za-z_.][-\w.]*):(?:\s+(.*))?$`)
	ofField   = regexp.MustCompile(`^(.*?)\s*\(v1:([\w.'\[\]/-]+)\)$`)
	ofKey     = regexp.MustCompile(`^<set to the key '([^']*)' (?:in|of) (secret|config map) '([^']*)'>`)
	ofLimits  = regexp.MustCompile(`^(.*?)\s*\((?:limits|requests)\.[\w.]+\)$`)
	sourceOf  = regexp.MustCompile(`^\s*(\S+)\s+(Secret|ConfigMap)\b`)
	mountLine = regexp.MustCompile(`^\s*(/\S*) from (\S+) \((r[ow])`)
)

// variable reads a variable of the environment, or a further line of its value.
func (u *unit) variable(text string) {
	m := variable.FindStringSubmatch(text)
	if m == nil {
		if n := len(u.spec.Env); n > 0 && u.spec.Env[n-1].ValueFrom == nil && strings.TrimSpace(text) != "<none>" {
			add(&u.spec.Env[n-1].Value, strings.TrimSpace(text))
		}
		return
	}
	e := corev1.EnvVar{Name: m[1], Value: m[2]}
	if f := ofField.FindStringSubmatch(m[2]); f != nil {
		e = corev1.EnvVar{Name: m[1], ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: f[2]}}}
	}
	if f := ofLimits.FindStringSubmatch(m[2]); f != nil {
		e = corev1.EnvVar{Name: m[1], ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}}}
	}
	if f := ofKey.FindStringSubmatch(m[2]); f != nil {
		e = corev1.EnvVar{Name: m[1], ValueFrom: &corev1.EnvVarSource{}}
		if ref := (corev1.LocalObjectReference{Name: f[3]}); f[2] == "secret" {
			e.ValueFrom.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: ref, Key: f[1]}
		} else {
			e.ValueFrom.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: f[1]}
		}
	}
	u.spec.Env = append(u.spec.Env, e)
}

// variables reads a line of the ConfigMaps and Secrets all of whose keys are variables.
func (u *unit) variables(text string) {
	m := sourceOf.FindStringSubmatch(text)
	if m == nil {
		return
	}
	from, ref := corev1.EnvFromSource{}, corev1.LocalObjectReference{Name: m[1]}
	if m[2] == "Secret" {
		from.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: ref}
	} else {
		from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: ref}
	}
	u.spec.EnvFrom = append(u.spec.EnvFrom, from)
}

func (u *unit) mount(text string) {
	if m := mountLine.FindStringSubmatch(text); m != nil {
		u.spec.VolumeMounts = append(u.spec.VolumeMounts, corev1.VolumeMount{MountPath: m[1], Name: m[2], ReadOnly: m[3] == "ro"})
	}
}

// ofVolume reads a field of a volume.
func ofVolume(v *corev1.Volume, key, value string) {
	kind, _, _ := strings.Cut(value, " ")
	switch {
	case key == "Type" && kind == "EmptyDir":
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case key == "Type" && kind == "ConfigMap":
		v.ConfigMap = &corev1.ConfigMapVolumeSource{}
	case key == "Type" && kind == "Secret":
		v.Secret = &corev1.SecretVolumeSource{}
	case key == "Type" && kind == "PersistentVolumeClaim":
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{}
	case key == "Name" && v.ConfigMap != nil:
		v.ConfigMap.Name = value
	case key == "SecretName" && v.Secret != nil:
		v.Secret.SecretName = value
	case key == "ClaimName" && v.PersistentVolumeClaim != nil:
		v.PersistentVolumeClaim.ClaimName = value
	}
}
