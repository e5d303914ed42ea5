package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
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

// A connection that comes before the proxy listens waits where the capture parks it: what is refused then
// is no race. Proxy and application start at :10, the proxy is ready at :15, the call is refused at :11.
func TestAParkedCallIsNoRace(t *testing.T) {
	byInit := func(flags string) string {
		return strings.Replace(startedPod, "initContainers: [", "initContainers: [{name: outrider-init, image: x, args: [capture, '-i', '*'"+flags+"]}, ", 1)
	}
	byNode := func(work contract.NodeWork) string {
		return strings.Replace(startedPod, "creationTimestamp:", fmt.Sprintf("annotations: {%s: %q}, creationTimestamp:", contract.NodeAnnotation, work), 1)
	}
	for name, tt := range map[string]struct {
		pod  string
		race bool
	}{
		"an init container parks":             {byInit(""), false},
		"it parks where that is required":     {byInit(", '--park=require'"), false},
		"it is told not to":                   {byInit(", '--park=off'"), true},
		"the node parks":                      {byNode(contract.NodeWork{Capture: []string{"-i", "*"}}), false},
		"the node is told not to":             {byNode(contract.NodeWork{Capture: []string{"-i", "*", "--park=off"}}), true},
		"nothing says who writes the capture": {startedPod, true},
		"another mesh has the same program":   {strings.ReplaceAll(byInit(""), "outrider-init", "istio-init"), true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := "outrider-proxy"
			if strings.Contains(tt.pod, "istio-init") {
				proxy = "istio-proxy"
			}
			folder := t.TempDir()
			for file, text := range map[string]string{"pod.yaml": strings.ReplaceAll(tt.pod, "istio-proxy", proxy), proxy + ".log": readyLog,
				"web.log": "2026-03-02T13:00:11.100000Z ERROR config: dial tcp 10.96.8.1:8080: connect: connection refused\n"} { // any order: files
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := diagnoseFolder(t, folder)
			if race := len(r.Findings) > 0 && r.Findings[0].Code == "startup-race"; race != tt.race {
				t.Errorf("a race: %v, want %v: %s", race, tt.race, r.Sentence)
			}
		})
	}
}
