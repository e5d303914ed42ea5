package podspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

func httpAt(path string, port intstr.IntOrString) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port}}}
}

// A probe counts if it can succeed: the readiness probe, then the startup probe, with the numbers of their ports.
func TestWhereAProxyIsHealthy(t *testing.T) {
	t.Parallel()
	exec := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	for name, c := range map[string]struct {
		name           string
		ready, startup *corev1.Probe
		annotations    map[string]string
		want           string
	}{
		"by its name":                  {name: "istio-proxy", want: "http://127.0.0.1:15021/healthz/ready"},
		"by a setting":                 {name: "istio-proxy", annotations: map[string]string{contract.StatusPortAnnotation: "0"}, want: "tcp://127.0.0.1:15001"},
		"a moved probe":                {name: "linkerd-proxy", ready: httpAt("/ready", intstr.FromString("admin")), want: "http://localhost:9991/ready"},
		"a port that is not declared":  {name: "linkerd-proxy", ready: httpAt("/ready", intstr.FromString("x")), want: "http://127.0.0.1:4191/ready"},
		"readiness before the start":   {name: "my-proxy", ready: httpAt("/up", intstr.FromInt32(80)), startup: httpAt("/begun", intstr.FromInt32(80)), want: "http://localhost:80/up"},
		"a startup probe alone":        {name: "kuma-sidecar", startup: httpAt("ready?x=1", intstr.FromInt32(9901)), want: "http://localhost:9901/ready?x=1"},
		"a startup probe that can ask": {name: "my-proxy", ready: exec, startup: httpAt("/up", intstr.FromInt32(80)), want: "http://localhost:80/up"},
		"an unknown container":         {name: "my-proxy"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: c.name, ReadinessProbe: c.ready, StartupProbe: c.startup, Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 9991}}}}}}
		pod.Annotations = c.annotations
		if got := healthURL(pod, &pod.Spec.Containers[0]); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestOnlyNamed(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "istio-proxy", Image: "nginx:1.27"}, {Name: "linkerd-proxy", Image: "cr.l5d.io/linkerd/proxy:1"}, {Name: "kuma-sidecar", Image: "mine", ReadinessProbe: httpAt("/", intstr.FromInt32(80))},
		{Name: "consul-dataplane", Image: "mirror/consul-dataplane"}, {Name: OurProxy, Image: "x"}, {Name: "app", Image: "x"},
	}}}
	if diff := cmp.Diff(map[string]string{"istio-proxy": "http://127.0.0.1:15021/healthz/ready"}, OnlyNamed(pod)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The hook knows the proxy's liveness probe, and the users of other proxies, whose sockets are no application's.
func TestWhatTheStopHookKnows(t *testing.T) {
	t.Parallel()
	user := func(id int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &id} }
	always := corev1.ContainerRestartPolicyAlways
	for name, c := range map[string]struct {
		others    []corev1.Container
		init      []corev1.Container
		want      []string
		absent    string
		wantMixed []string
	}{
		"alone":                       {want: []string{"--sockets"}, absent: "--apart"},
		"a proxy with a known user":   {others: []corev1.Container{{Name: "cloud-sql-proxy", SecurityContext: user(65532)}}, want: []string{"--apart 65532"}},
		"a native proxy":              {init: []corev1.Container{{Name: "istio-proxy", RestartPolicy: &always}}, want: []string{"--sockets", "--apart 1337"}},
		"the user of an application":  {others: []corev1.Container{{Name: "cloud-sql-proxy", SecurityContext: user(1000)}, {Name: "free", SecurityContext: user(1000)}}, want: []string{"--sockets"}, absent: "--apart", wantMixed: []string{"cloud-sql-proxy"}},
		"a user that is in the image": {others: []corev1.Container{{Name: "cloud-sql-proxy"}}, want: []string{"--sockets"}, absent: "--apart", wantMixed: []string{"cloud-sql-proxy"}},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: append([]corev1.Container{
			{Name: "app"}, {Name: "linkerd-proxy", LivenessProbe: httpAt("/live", intstr.FromInt32(4191))},
		}, c.others...)}}
		out, err := Write(pod, startup.Plan{}, "", "linkerd-proxy")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(out.Spec.Containers, containerNamed("linkerd-proxy"))
		line := strings.Join(out.Spec.Containers[i].Lifecycle.PreStop.Exec.Command, " ")
		if slices.ContainsFunc(c.want, func(w string) bool { return !strings.Contains(line, w) }) || c.absent != "" && strings.Contains(line, c.absent) || !strings.Contains(line, `--live {"httpGet":{"path":"/live","port":4191}}`) {
			t.Errorf("%s: %s; want %q, not %q", name, line, c.want, c.absent)
		}
		if diff := cmp.Diff(c.wantMixed, Keeps(out)[0].Mixed); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An image volume is ours if an earlier step of the same writing has added it.
func TestGateAndStopHookShareTheImageVolume(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Command: []string{"/app"}}, {Name: "istio-proxy"}}}}
	plan := startup.Plan{Edges: []startup.Edge{{From: "istio-proxy", To: "app", After: startup.Healthy, By: startup.Gate}}}
	out, err := WriteByVolume(pod, plan, "agent:1", corev1.PullAlways, "istio-proxy")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(out.Spec.Volumes); n != 2 || !StaysUntilEnd(&out.Spec.Containers[1]) {
		t.Errorf("%d volumes, want 2; %+v", n, out.Spec.Containers[1])
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: BinVolume, VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "another:1"}}}}
	if _, err := WriteByVolume(pod, plan, "agent:1", corev1.PullAlways); err == nil {
		t.Error("the pod's own volume is taken for the gates'")
	}
}
