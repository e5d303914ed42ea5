package mechanism

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

// Pods, edges and mechanisms are random. Every plan that Write accepts is read back as requested. And Write
// accepts every plan whose mechanisms Choose has chosen.
func TestRoundTripOfRandomPods(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	written, chosen := 0, 0
	for range 3000 {
		var b strings.Builder
		names := []string{"app", "web", "cache", "migrate", pick("istio-proxy", "linkerd-proxy", "outrider-proxy", "db")}
		for _, n := range names {
			kind := pick("plain", "plain", "plain", "sidecar", "init")
			fmt.Fprintf(&b, "container %s is %s, healthy by %s\n", n, kind, pick("nothing", "startup-probe", "readiness-probe", "readiness-probe"))
		}
		for range 1 + rng.IntN(4) {
			to, from := pick(append(names, "*")...), pick(names...)
			fmt.Fprintf(&b, "%s after %s is %s%s, by %s\n", to, from, pick("started", "healthy", "healthy", "completed"),
				pick("", "", ", within 20s or continue", ", optional", ", on restart restart"), pick("gate", "native", "hold", "init"))
		}
		p := pods.Plan(t, b.String())
		in := podOf(p)
		for i := range in.Spec.Containers {
			if rng.IntN(4) == 0 {
				in.Spec.Containers[i].Command = nil // without a command it cannot get a gate
			}
		}
		before, _ := podspec.Read(in)
		p.Containers = before.Containers
		if out, err := podspec.Write(in, p, ""); err == nil {
			written++
			has(t, p, out)
		}
		in.Annotations = map[string]string{}
		for i := range p.Edges {
			p.Edges[i].By = ""
		}
		in.Annotations[contract.DependsOn] = request.FormatEdges(p.Edges)
		r, err := podspec.Read(in)
		if err != nil || r.Plan().Validate(34).Err() != nil {
			continue
		}
		p.Edges = nil
		for _, c := range Choose(r, 34) {
			if c.Edge.By != "" {
				p.Edges = append(p.Edges, c.Edge)
			}
		}
		if out, err := podspec.Write(in, p, ""); err != nil {
			t.Errorf("chosen, and not written: %v\n%s", err, p)
		} else {
			chosen++
			has(t, p, out)
		}
	}
	if written < 300 || chosen < 300 {
		t.Errorf("%d plans written, %d chosen and written: the test shows little", written, chosen)
	}
}

// has checks that the pod has every edge and every container of the plan.
func has(t *testing.T, p startup.Plan, out *corev1.Pod) {
	t.Helper()
	r, err := podspec.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	pods.Has(t, r.Plan(), p)
}

// podOf returns a pod with the containers of a plan. All have a command, and those with a probe in the plan have
// that probe.
func podOf(p startup.Plan) *corev1.Pod {
	out := &corev1.Pod{}
	always := corev1.ContainerRestartPolicyAlways
	for _, c := range p.Containers {
		one := corev1.Container{Name: c.Name, Image: "i", Command: []string{"/" + c.Name}}
		switch c.Health {
		case startup.StartupProbe:
			one.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		case startup.NoHealth:
		default:
			one.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}
		switch c.Kind {
		case startup.Plain:
			out.Spec.Containers = append(out.Spec.Containers, one)
		case startup.Sidecar:
			one.RestartPolicy = &always
			fallthrough
		default:
			out.Spec.InitContainers = append(out.Spec.InitContainers, one)
		}
	}
	return out
}
