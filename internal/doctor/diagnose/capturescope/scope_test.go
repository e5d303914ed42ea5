package capturescope

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// The method [Scope.Takes] agrees with the rules that the pod's settings produce.
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
		to   doctor.Destination
		want doctor.Answer
	}{
		"all":                               {classic("-i", "*"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Yes},
		"no range":                          {classic("-i", ""), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.No},
		"a range that is left out":          {classic("-i", "*", "-x", "10.96.12.0/24"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.No},
		"beside it":                         {classic("-i", "*", "-x", "10.96.12.0/24"), doctor.Destination{Host: "10.96.13.9", Port: 9090}, doctor.Yes},
		"an IPv6 range that is left out":    {classic("-i", "*", "-x", "fd00::/8"), doctor.Destination{Host: "fd00::9", Port: 9090}, doctor.No},
		"a name, where a range is left out": {classic("-i", "*", "-x", "10.96.12.0/24"), doctor.Destination{Host: "config", Port: 9090}, doctor.Perhaps},
		"a port that is left out":           {classic("-i", "*", "-o", "9090"), doctor.Destination{Host: "config", Port: 9090}, doctor.No},
		"the pod itself, by name":           {classic("-i", "*"), doctor.Destination{Host: "localhost", Port: 9090}, doctor.No},
		"the pod itself, by address":        {classic("-i", "*"), doctor.Destination{Host: "127.0.0.1", Port: 9090}, doctor.No},
		"a variable of the container":       {withEnv(classic("-i", "$(RANGES)"), "RANGES", "10.96.12.0/24"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Yes},
		"its value leaves it out":           {withEnv(classic("-i", "$(RANGES)"), "RANGES", "10.96.13.0/24"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.No},
		"by a plugin of the node":           {cni(nil), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Yes},
		"by a plugin, left out":             {cni(map[string]string{"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.96.12.0/24"}), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.No},
		"a setting of the program alone":    {classic("--copy", "/outrider/bin/outrider-agent", "-i", "*", "--backend=nftables"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Yes},
		"a script instead of the program":   {script("iptables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Perhaps},
		"an unknown setting":                {classic("-i", "*", "--what", "x"), doctor.Destination{Host: "10.96.12.9", Port: 9090}, doctor.Perhaps},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := Of(c.pod, "istio-proxy").Takes("web", c.to); got != c.want {
				t.Errorf("%d (%s), want %d", got, why, c.want)
			}
		})
	}
}

// A setting that is not in the evidence makes the answer uncertain; it is never No.
func TestOmitted(t *testing.T) {
	to := doctor.Destination{Host: "10.96.12.9", Port: 9090}
	of := func(init ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: init, Containers: []corev1.Container{{Name: "web", Image: "example.com/web:2"}}}}
	}
	admin := func(c corev1.Capabilities) corev1.Container {
		return corev1.Container{Name: "i", Args: []string{"x"}, SecurityContext: &corev1.SecurityContext{Capabilities: &c}}
	}
	all := evidence.Omitted{Meta: true, Spec: true, Hooks: true}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		proxy   string
		omitted evidence.Omitted
		want    doctor.Answer
	}{
		"the spec":                              {of(), "istio-proxy", all, doctor.Perhaps},
		"the annotations alone":                 {of(), "istio-proxy", evidence.Omitted{Meta: true}, doctor.Perhaps},
		"the annotations, not the arguments":    {of(corev1.Container{Name: "istio-init", Args: []string{"-i", "*"}}), "istio-proxy", evidence.Omitted{Meta: true}, doctor.Yes},
		"the arguments":                         {of(corev1.Container{Name: "istio-init", Args: []string{"..."}}), "istio-proxy", evidence.Omitted{}, doctor.Perhaps},
		"all of them":                           {of(corev1.Container{Name: "linkerd-init"}), "linkerd-proxy", evidence.Omitted{}, doctor.Perhaps},
		"some, and the port is among the rest":  {of(corev1.Container{Name: "istio-init", Args: []string{"...", "-o", "9090"}}), "istio-proxy", evidence.Omitted{}, doctor.No},
		"some, and the range is among the rest": {of(corev1.Container{Name: "istio-init", Args: []string{"-i", "10.1.0.0/16", "[...]"}}), "istio-proxy", evidence.Omitted{}, doctor.No},
		"the spec with a plain Envoy":           {of(), "envoy", all, doctor.Perhaps},
		"the spec with Dapr":                    {of(), "daprd", all, doctor.No},
		"the annotations with Consul":           {of(), "consul-dataplane", all, doctor.Perhaps},
		"rights, and a script":                  {of(corev1.Container{Name: "i", Args: []string{"-c", "iptables -t nat -A OUTPUT -j REDIRECT"}}), "envoy", evidence.Omitted{Hooks: true}, doctor.Perhaps},
		"rights, and no script":                 {of(corev1.Container{Name: "i", Args: []string{"-c", "migrate"}}), "envoy", evidence.Omitted{Hooks: true}, doctor.No},
		"a script, and no rights":               {of(corev1.Container{Name: "i", Args: []string{"-c", "iptables -t nat -A OUTPUT -j REDIRECT"}, SecurityContext: &corev1.SecurityContext{}}), "envoy", evidence.Omitted{}, doctor.No},
		"whether a script has rights":           {of(corev1.Container{Name: "i", Args: []string{"-c", "iptables -t nat -A OUTPUT -j REDIRECT"}}), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"what an init container does":           {of(corev1.Container{Name: "i", Image: "example.com/setup:1"}), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"what it does, with Dapr":               {of(corev1.Container{Name: "i", Image: "example.com/setup:1"}), "daprd", evidence.Omitted{}, doctor.No},
		"what one of the application does":      {of(corev1.Container{Name: "i", Image: "example.com/web:1"}), "envoy", evidence.Omitted{}, doctor.No},
		"the rights of one of a mesh":           {of(corev1.Container{Name: "osm-init", Args: []string{"x"}, SecurityContext: &corev1.SecurityContext{}}), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"the rights of an image of a mesh":      {of(corev1.Container{Name: "i", Image: "openservicemesh/init:v1", Args: []string{"x"}, SecurityContext: &corev1.SecurityContext{}}), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"NET_ADMIN":                             {of(admin(corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}})), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"CAP_NET_ADMIN":                         {of(admin(corev1.Capabilities{Add: []corev1.Capability{"CAP_NET_ADMIN"}})), "envoy", evidence.Omitted{}, doctor.Perhaps},
		"no NET_ADMIN":                          {of(admin(corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}})), "envoy", evidence.Omitted{}, doctor.No},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := OfPart(c.pod, c.proxy, c.omitted).Takes("web", to); got != c.want {
				t.Errorf("%d (%s), want %d", got, why, c.want)
			}
		})
	}
}

// A container that only checks the rules of another writer is known by its arguments or, without any, by its name.
func TestOnlyChecks(t *testing.T) {
	for _, c := range []struct {
		of   corev1.Container
		want bool
	}{
		{corev1.Container{Name: "any", Args: []string{"istio-iptables", "-p", "15001", "--run-validation", "--skip-rule-apply"}}, true},
		{corev1.Container{Name: "any", Args: []string{"--skip-rule-apply=false", "--run-validation"}}, false},
		{corev1.Container{Name: "istio-init", Args: []string{"istio-iptables", "--run-validation"}}, false},
		{corev1.Container{Name: "istio-validation"}, true},
		{corev1.Container{Name: "linkerd-network-validator", Args: []string{"--timeout", "10s"}}, true},
	} {
		if got := OnlyChecks(&c.of); got != c.want {
			t.Errorf("%s %q: %v", c.of.Name, c.of.Args, got)
		}
	}
	if OnlyChecks(nil) {
		t.Error("what is not in the evidence checks")
	}
}

// With the rules of Outrider's program, captured connections wait until the proxy listens, unless a setting turns
// that off. With the rules of other meshes they are refused.
func TestParks(t *testing.T) {
	written := func(by string, args ...string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: by, Args: append([]string{"capture", "-i", "*"}, args...)}}}}
	}
	byNode := func(capture ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		podspec.SetNodeWork(pod, contract.NodeWork{Capture: capture})
		return pod
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		proxy string
		want  bool
	}{
		"an init container":                    {written("outrider-init"), "outrider-proxy", true},
		"one that requires it":                 {written("outrider-init", "--park=require"), "outrider-proxy", true},
		"one that is told not to":              {written("outrider-init", "--park=off"), "outrider-proxy", false},
		"the node":                             {byNode("-i", "*"), "outrider-proxy", true},
		"the node is told not to":              {byNode("-i", "*", "--park=off"), "outrider-proxy", false},
		"the object does not say who captures": {&corev1.Pod{}, "outrider-proxy", false},
		"another mesh":                         {written("istio-init"), "istio-proxy", false},
		"another mesh, and a foreign setting":  {written("istio-init", "--park=on"), "istio-proxy", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(c.pod, c.proxy).Parks; got != c.want {
				t.Errorf("it parks: %v, want %v", got, c.want)
			}
		})
	}
}

// A setting that is not understood makes an answer uncertain, and causes no panic.
func FuzzCapture(f *testing.F) {
	f.Add("istio-iptables -p 15001 -u 1337 -i * -x  -o 12345", "prices", uint16(8080))
	f.Add("--outbound-ports-to-ignore=4567,x", "127.0.0.1", uint16(0))
	f.Fuzz(func(t *testing.T, arguments, host string, port uint16) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "istio-init", Args: strings.Split(arguments, " ")}}}}
		c := Of(pod, "istio-proxy")
		takes, why := c.Takes("app", doctor.Destination{Host: host, Port: port})
		if (takes == doctor.Yes) != (why == "") {
			t.Errorf("%d, %q", takes, why)
		}
	})
}
