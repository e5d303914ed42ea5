package validation

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	security "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/test/tier"
)

var pods = flag.Int("pods", tier.Times(100, 10_000), "random pods to inject")

// A draw returns a random number below n.
type draw func(n int) int

func (d draw) of(words ...string) string { return words[d(len(words))] }

// amount sets a random amount of one of the resources.
func (d draw) amount(list *corev1.ResourceList, names ...string) {
	name := d.of(names...)
	text := d.of("1Mi", "64Mi", "3Gi")
	if name == "cpu" {
		text = d.of("1m", "50m", "1", "3")
	}
	*list = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(text)}
}

// authors are changes that users make to pods. The API server may refuse a combination of two.
var authors []func(draw, *corev1.Pod)

func init() {
	authors = []func(draw, *corev1.Pod){
		func(d draw, pod *corev1.Pod) { // resources of a container
			c := someContainer(d, pod)
			for _, list := range []*corev1.ResourceList{&c.Resources.Requests, &c.Resources.Limits} {
				if *list = nil; d(3) > 0 {
					d.amount(list, "cpu", "memory", "ephemeral-storage")
				}
			}
		},
		func(d draw, pod *corev1.Pod) { // resources of the pod
			pod.Spec.Resources = &corev1.ResourceRequirements{}
			for _, list := range []*corev1.ResourceList{&pod.Spec.Resources.Requests, &pod.Spec.Resources.Limits} {
				if d(2) > 0 {
					d.amount(list, "cpu", "memory")
				}
			}
		},
		func(d draw, pod *corev1.Pod) {
			var more corev1.ResourceList
			d.amount(&more, "cpu", "memory")
			podLevel(more)(pod)
			if d(2) > 0 {
				pod.Spec.Resources.Limits = nil
			}
		},
		func(d draw, pod *corev1.Pod) { *someProbe(d, someContainer(d, pod)) = probe(d) },
		func(d draw, pod *corev1.Pod) { *someHook(d, someContainer(d, pod)) = hook(d) },
		func(d draw, pod *corev1.Pod) { someContainer(d, pod).SecurityContext = securityOf(d) },
		func(d draw, pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(d(2) > 0), RunAsUser: new(int64(d(3) * 1000)), FSGroup: new(int64(1000))}
		},
		func(d draw, pod *corev1.Pod) { pod.Spec.HostUsers = new(d(2) > 0) },
		func(d draw, pod *corev1.Pod) {
			someContainer(d, pod).ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "NotRequired"}}
		},
		func(d draw, pod *corev1.Pod) {
			c := someContainer(d, pod)
			c.Env = append(c.Env, corev1.EnvVar{Name: d.of("A", "PROXY_CONFIG", "POD_NAME"), Value: "x"})
		},
		func(d draw, pod *corev1.Pod) { pod.Spec.ShareProcessNamespace = new(true) },
		func(d draw, pod *corev1.Pod) {
			pod.Spec.OS = &corev1.PodOS{Name: corev1.OSName(d.of("linux", "windows"))}
		},
		func(d draw, pod *corev1.Pod) { pod.Spec.AutomountServiceAccountToken = new(false) },
		func(d draw, pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(d(40))) },
		func(d draw, pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(1 + d(40))) },
		func(d draw, pod *corev1.Pod) {
			pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "regcred"}}
		},
		func(d draw, pod *corev1.Pod) {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x.example/y"}}
		},
		func(d draw, pod *corev1.Pod) {
			someContainer(d, pod).Command = []string{d.of("/app", "sh", "/sbin/init", strings.Repeat("x", 100000)), strings.Repeat("y", d(2)*100000)}
		},
		func(d draw, pod *corev1.Pod) { someContainer(d, pod).Command = nil },
		func(d draw, pod *corev1.Pod) { someContainer(d, pod).Args = []string{"-c", "sleep 3; exec run"} },
		func(d draw, pod *corev1.Pod) {
			someContainer(d, pod).Ports = []corev1.ContainerPort{{Name: d.of("http", "http-ready", "metrics"), ContainerPort: int32(8080 + d(3)), Protocol: corev1.Protocol(d.of("TCP", "UDP"))}, {ContainerPort: int32(15019 + d(4))}}
		},
		func(d draw, pod *corev1.Pod) {
			c := someContainer(d, pod)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: d.of("data", "more", "outrider-bin", "outrider-state"), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: pod.Spec.Volumes[len(pod.Spec.Volumes)-1].Name, MountPath: d.of("/data", "/outrider/bin", "/etc/outrider", "/var/run/secrets/tokens")})
		},
		func(d draw, pod *corev1.Pod) { // an additional container, or one of the author's with a name that injection uses
			c := corev1.Container{Name: d.of("more", "outrider-proxy", "outrider-init", "istio-proxy", "istio-init", strings.Repeat("n", 63)), Image: d.of("auto", "registry.example/app:1")}
			for range d(4) {
				alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: pod.Annotations}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
				authors[d(len(authors))](d, alone)
				c = alone.Spec.Containers[0]
				pod.Spec.Volumes = append(pod.Spec.Volumes, alone.Spec.Volumes...)
			}
			switch d(3) {
			case 0:
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			case 1:
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				pod.Spec.InitContainers = append([]corev1.Container{c}, pod.Spec.InitContainers...)
			default:
				pod.Spec.Containers = append(pod.Spec.Containers, c)
			}
		},
		func(d draw, pod *corev1.Pod) { // an order
			a, b := someContainer(d, pod).Name, someContainer(d, pod).Name
			if d(2) > 0 {
				b = "outrider-proxy"
			}
			pod.Annotations["outrider.dev/depends-on."+a] = b + "=" + d.of("started", "healthy", "completed")
		},
		func(d draw, pod *corev1.Pod) {
			s := cases[d(len(cases))]
			for key, value := range s.annotations { // any order: keys differ
				pod.Annotations[key] = value
			}
		},
		func(d draw, pod *corev1.Pod) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[d.of("app", "version", "app.kubernetes.io/name")] = d.of("", "a", strings.Repeat("a", 63), "A_b.c")
		},
	}
}

func someContainer(d draw, pod *corev1.Pod) *corev1.Container {
	if i := d(len(pod.Spec.InitContainers) + len(pod.Spec.Containers)); i < len(pod.Spec.InitContainers) {
		return &pod.Spec.InitContainers[i]
	} else {
		return &pod.Spec.Containers[i-len(pod.Spec.InitContainers)]
	}
}

func handler(d draw) corev1.ProbeHandler {
	port := intstr.FromInt32(8080)
	switch d(4) {
	case 0:
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	case 1:
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}
	case 2:
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9090, Service: new(d.of("", "s"))}}
	}
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: port, Scheme: corev1.URIScheme(d.of("", "HTTP", "HTTPS")), HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "x"}}}}
}

func probe(d draw) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: handler(d), PeriodSeconds: int32(d(12)), TimeoutSeconds: int32(d(3)), FailureThreshold: int32(d(4)), SuccessThreshold: int32(d(2))}
}

func someProbe(d draw, c *corev1.Container) **corev1.Probe {
	return []**corev1.Probe{&c.ReadinessProbe, &c.LivenessProbe, &c.StartupProbe}[d(3)]
}

func hook(d draw) *corev1.LifecycleHandler {
	h := handler(d)
	if h.GRPC != nil {
		return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(d(3))}}
	}
	return &corev1.LifecycleHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}
}

func someHook(d draw, c *corev1.Container) **corev1.LifecycleHandler {
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	return []**corev1.LifecycleHandler{&c.Lifecycle.PreStop, &c.Lifecycle.PostStart}[d(2)]
}

func securityOf(d draw) *corev1.SecurityContext {
	out := &corev1.SecurityContext{}
	for _, b := range []**bool{&out.Privileged, &out.AllowPrivilegeEscalation, &out.RunAsNonRoot, &out.ReadOnlyRootFilesystem} {
		if d(3) == 0 {
			*b = new(d(2) > 0)
		}
	}
	if d(3) == 0 {
		out.RunAsUser = new(int64(d(3) * 1337))
	}
	if d(3) == 0 {
		out.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{corev1.Capability(d.of("NET_RAW", "SYS_ADMIN", "CAP_SYS_ADMIN", "NET_ADMIN"))}}
	}
	if d(3) == 0 {
		out.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileType(d.of("Unconfined", "Localhost"))}
		if out.SeccompProfile.Type == corev1.SeccompProfileTypeLocalhost {
			out.SeccompProfile.LocalhostProfile = new("p.json")
		}
	}
	return out
}

// Pods of the corpus are changed at random as their authors might: those that the API server
// accepts as written, it also accepts injected.
func TestRandomPods(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := draw(rng.IntN)
	subjects, all, invalid := sane(t), newCounts(), 0
	for n := range *pods {
		of := subjects[d(len(subjects))]
		s := cases[d(len(cases))]
		s.all, s.keeps = false, false
		pod := s.written(&of.Pod)
		for range 1 + d(4) {
			authors[d(len(authors))](d, pod)
		}
		of.Pod, of.was = *pod, nil
		if len(of.judged(t, pod).errors) > 0 {
			invalid++
			continue
		}
		s.change, s.annotations = nil, nil // the pod already contains them
		s.enforce = security.Level(d.of("", "", "", "", "", "", "baseline", "restricted"))
		all.injects(t, s, s.options(t), of)
		if t.Failed() {
			text, _ := yaml.Marshal(pod)
			t.Fatalf("pod %d, %s:\n%s", n, s.name, text)
		}
	}
	t.Logf("%d random pods, of which the API server refuses %d as they are written: %v", *pods, invalid, all)
}

// hostile lists values that some settings do not accept.
var hostile = []string{"", "0", "-1", "1", "99999999999", "true", "x", "X y", "a=b", "*", "{}", "[]", "null", `{"a": {}}`, `{"a": "b"}`, `["a"]`, `[""]`, "128m", "0.0001", "15021", "../..",
	strings.Repeat("a", 300), "a\nb", "é", "{", `{"a": {"mountPath": "/a"}}`, `{"exec": {"command": ["a"]}}`, `{"preStop": {}}`, `{"type": "x"}`, `{"type": "Localhost"}`, `{"limits": {"x": 1}}`,
	`{"limits": {"memory": "100m"}}`, `{"limits": {"x.example/y": 1.5}}`, `{"requests": {"x.example/y": 1}}`, `{"limits": {"x.example/y": 2}}`, `{"limits": {"hugepages-2Mi": "2Mi"}}`, `{"a=b": "c"}`, `{"": "c"}`, `{"X y": "z"}`, `{"preStop": {"sleep": {"seconds": 1000}}}`,
	`{"preStop": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}}`, `{"postStart": {"httpGet": {"path": "/"}}}`, `{"preStop": {"exec": {}}}`, `{"data": {"hostPath": {"path": ""}}}`, `{"data": {"configMap": {}}}`, `{"data": {"mountPath": "/x", "subPath": "../a"}}`,
	`{"data": {"emptyDir": {"sizeLimit": "-1"}}}`}

// A setting that injection accepts gives a valid pod, whatever its value is.
func TestHostileSettings(t *testing.T) {
	of := sane(t)[0]
	pods, refused, values := 0, 0, 0
	seen := map[string]bool{} // most settings have no effect on a given pod
	check := func(what string, pod *corev1.Pod, o inject.Options, err error) {
		pods++
		var r inject.Result
		if err == nil {
			r, err = inject.Pod(pod, inject.Namespace{Name: namespace}, o)
		}
		switch {
		case err != nil:
			refused++
		case r.Injected:
			raw := string(of.with(t, r.Pod))
			if seen[raw] {
				return
			}
			seen[raw] = true
			v := of.judged(t, r.Pod)
			for _, e := range slices.Concat(v.errors, v.warnings) {
				t.Errorf("%s: not refused, and the API server refuses the pod or warns: %s", what, e)
			}
		}
	}
	for _, k := range settings.Keys() {
		if k.Means == "" {
			continue // it has no effect
		}
		for _, value := range hostile {
			what := fmt.Sprintf("%s %s: %q", k.Surface, k.Name, value)
			if values++; !tier.Sample(what, 4) {
				continue
			}
			pod := of.Pod.DeepCopy()
			o := inject.Options{Manual: true}
			var err error
			switch k.Surface {
			case settings.InAnnotations:
				pod.Annotations = annotations{k.Name: value}
			case settings.InLabels:
				pod.Labels = annotations{k.Name: value}
				if len(of.judged(t, pod).errors) > 0 {
					continue
				}
			case settings.InValues:
				o.Values, _, err = settings.ParseValues(nested(k.Name, value))
			case settings.InMesh:
				o.Mesh, err = settings.ParseMesh(nested(k.Name, value))
			case settings.InProxyConfig:
				o.Mesh, err = settings.ParseMesh(nested("defaultConfig."+k.Name, value))
			}
			check(what, pod, o, err)
		}
	}
	t.Logf("%d of %d settings with values that some do not take: %d refused by injection, the others give %d pods, and each is valid", pods, values, refused, len(seen))
}

// nested returns JSON with a value at a path.
func nested(path, value string) []byte {
	var v any
	if yaml.Unmarshal([]byte(value), &v) != nil {
		v = value
	}
	steps := strings.Split(path, ".")
	slices.Reverse(steps)
	for _, step := range steps {
		v = map[string]any{step: v}
	}
	text, _ := json.Marshal(v) // values from YAML can always be encoded
	return text
}
