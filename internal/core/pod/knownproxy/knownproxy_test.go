package knownproxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
)

func httpAt(path string, port int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}}
}

// The container's own probe says where it is healthy, then the mesh's settings, then its name.
func TestHealthURL(t *testing.T) {
	t.Parallel()
	tcp := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(20000)}}}
	exec := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	for name, c := range map[string]struct {
		name        string
		probes      []*corev1.Probe
		annotations map[string]string
		want        string
	}{
		"by its name":                   {name: "istio-proxy", want: "http://127.0.0.1:15021/healthz/ready"},
		"a usual probe":                 {name: "istio-proxy", probes: []*corev1.Probe{httpAt("/healthz/ready", 15021)}, want: "http://127.0.0.1:15021/healthz/ready"},
		"no status port":                {name: "istio-proxy", annotations: map[string]string{contract.StatusPortAnnotation: "0"}, want: "tcp://127.0.0.1:15001"},
		"a moved admin port":            {name: "linkerd-proxy", annotations: map[string]string{"config.linkerd.io/admin-port": "9991"}, want: "http://127.0.0.1:9991/ready"},
		"an admin port that is none":    {name: "linkerd-proxy", annotations: map[string]string{"config.linkerd.io/admin-port": "0"}, want: "http://127.0.0.1:4191/ready"},
		"a probe before a setting":      {name: "linkerd-proxy", probes: []*corev1.Probe{httpAt("/ready", 9992)}, annotations: map[string]string{"config.linkerd.io/admin-port": "9991"}, want: "http://localhost:9992/ready"},
		"Kuma's older port":             {name: "kuma-sidecar", probes: []*corev1.Probe{httpAt("ready?x=1", 9901)}, want: "http://localhost:9901/ready?x=1"},
		"Consul":                        {name: "consul-dataplane", want: "tcp://localhost:20000"},
		"Consul, as its injector":       {name: "consul-dataplane", probes: []*corev1.Probe{tcp}, want: "tcp://localhost:20000"},
		"Consul, several services":      {name: "consul-dataplane-web", probes: []*corev1.Probe{httpAt("/ready", 21001)}, want: "http://localhost:21001/ready"},
		"a probe that cannot be asked":  {name: "istio-proxy", probes: []*corev1.Probe{exec}, want: "http://127.0.0.1:15021/healthz/ready"},
		"the second of two can be":      {name: "my-proxy", probes: []*corev1.Probe{exec, tcp}, want: "tcp://localhost:20000"},
		"an unknown container's probe":  {name: "my-proxy", probes: []*corev1.Probe{httpAt("/up", 80)}, want: "http://localhost:80/up"},
		"an unknown container":          {name: "my-proxy"},
		"a path that is no part of URL": {name: "my-proxy", probes: []*corev1.Probe{httpAt("//x/%zz", 80)}, want: "http://localhost:80//x/%25zz"},
	} {
		if got := HealthURL(c.name, c.annotations, c.probes...); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWaitOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		argv []string
		want Wait
	}{
		"the program's own limit": {[]string{"/usr/local/bin/pilot-agent", "wait"}, Wait{"pilot-agent wait", []string{"istio-proxy", contract.ProxyContainer}, time.Minute}},
		"a limit as one word":     {[]string{"linkerd-await", "--timeout=5s", "--", "app"}, Wait{"linkerd-await", []string{"linkerd-proxy"}, 5 * time.Second}},
		"a limit as two words":    {[]string{"kuma-dp", "wait", "-t", "5s"}, Wait{"kuma-dp wait", []string{"kuma-sidecar"}, 5 * time.Second}},
		"a limit that is none":    {[]string{"kuma-dp", "wait", "--timeout=0s"}, Wait{"kuma-dp wait", []string{"kuma-sidecar"}, 0}},
		"another of its commands": {argv: []string{"pilot-agent", "proxy"}},
		"another program":         {argv: []string{"wait"}},
		"nothing":                 {},
	} {
		got, ok := WaitOf(c.argv)
		if diff := cmp.Diff(c.want, got); diff != "" || ok != (c.want.Program != "") {
			t.Errorf("%s: %v (-want +got):\n%s", name, ok, diff)
		}
	}
}

// A container of a user-defined template is the mesh's proxy only where none has a known name.
func TestIsMeshProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     string
		containers []string
		want       []string
	}{
		"by its name":                      {containers: []string{"app", "consul-dataplane-web"}, want: []string{"consul-dataplane-web"}},
		"applications connect to it":       {containers: []string{"app", "cloud-sql-proxy"}},
		"by the annotation":                {status: `{"containers":["absent","mine"]}`, containers: []string{"app", "mine"}, want: []string{"mine"}},
		"the annotation, beside Cloud SQL": {status: `{"containers":["mine"]}`, containers: []string{"mine", "cloud-sql-proxy"}, want: []string{"mine"}},
		"the annotation, beside a mesh's":  {status: `{"containers":["mine"]}`, containers: []string{"mine", "linkerd-proxy"}, want: []string{"linkerd-proxy"}},
		"an annotation that is no JSON":    {status: `mine`, containers: []string{"mine"}},
	} {
		pod := &corev1.Pod{}
		if c.status != "" {
			pod.Annotations = map[string]string{contract.IstioStatus: c.status}
		}
		for _, name := range c.containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		}
		var got []string
		for i := range pod.Spec.Containers {
			if IsMeshProxy(pod, &pod.Spec.Containers[i]) {
				got = append(got, pod.Spec.Containers[i].Name)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
