package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
)

// What goes to the proxy is what the rules take that the pod's settings make.
func TestTakes(t *testing.T) {
	cni := func(annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	classic := func(args ...string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "istio-init", Args: append([]string{"istio-iptables"}, args...)}}}}
	}
	script := func(text string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "istio-init", Command: []string{"sh", "-ec", text}}}}}
	}
	withEnv := func(pod *corev1.Pod, name, value string) *corev1.Pod {
		pod.Spec.InitContainers[0].Env = []corev1.EnvVar{{Name: name, Value: value}}
		return pod
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		to   destination
		want answer
	}{
		"all":                               {classic("-i", "*"), destination{"10.96.12.9", 9090}, yes},
		"no range":                          {classic("-i", ""), destination{"10.96.12.9", 9090}, no},
		"a range that is left out":          {classic("-i", "*", "-x", "10.96.12.0/24"), destination{"10.96.12.9", 9090}, no},
		"beside it":                         {classic("-i", "*", "-x", "10.96.12.0/24"), destination{"10.96.13.9", 9090}, yes},
		"an IPv6 range that is left out":    {classic("-i", "*", "-x", "fd00::/8"), destination{"fd00::9", 9090}, no},
		"a name, where a range is left out": {classic("-i", "*", "-x", "10.96.12.0/24"), destination{"config", 9090}, perhaps},
		"a port that is left out":           {classic("-i", "*", "-o", "9090"), destination{"config", 9090}, no},
		"the pod itself, by name":           {classic("-i", "*"), destination{"localhost", 9090}, no},
		"the pod itself, by address":        {classic("-i", "*"), destination{"127.0.0.1", 9090}, no},
		"a variable of the container":       {withEnv(classic("-i", "$(RANGES)"), "RANGES", "10.96.12.0/24"), destination{"10.96.12.9", 9090}, yes},
		"its value leaves it out":           {withEnv(classic("-i", "$(RANGES)"), "RANGES", "10.96.13.0/24"), destination{"10.96.12.9", 9090}, no},
		"by a plugin of the node":           {cni(nil), destination{"10.96.12.9", 9090}, yes},
		"by a plugin, left out":             {cni(map[string]string{"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.96.12.0/24"}), destination{"10.96.12.9", 9090}, no},
		"a setting of the program alone":    {classic("--copy", "/outrider/bin/outrider-agent", "-i", "*", "--backend=nftables"), destination{"10.96.12.9", 9090}, yes},
		"a script instead of the program":   {script("iptables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001"), destination{"10.96.12.9", 9090}, perhaps},
		"an unknown setting":                {classic("-i", "*", "--what", "x"), destination{"10.96.12.9", 9090}, perhaps},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := readCapture(c.pod, &evidence.Container{Name: "istio-proxy"}).takes("web", c.to); got != c.want {
				t.Errorf("%d (%s), want %d", got, why, c.want)
			}
		})
	}
}
