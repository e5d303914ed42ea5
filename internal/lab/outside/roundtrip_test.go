package outside

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/startup"
)

// races are the codes of findings about calls that were made before the proxy was ready.
var races = []string{"startup-race", "hold-fails-open", "hold-without-effect"}

// The test plays 300 random pods with random faults in a model of the kubelet, and diagnoses each from what an
// operator sees: a status with whole seconds, and the logs of two runs. Every event in the diagnosis must have
// happened, and the diagnosis must find a race exactly if there was one.
func TestRoundTrip(t *testing.T) {
	epoch := time.Date(2026, 3, 2, 13, 16, 12, 0, time.UTC)
	raced, decided := 0, 0
	for seed := range uint64(300) {
		p := randomPod(rand.New(rand.NewPCG(seed, 17)))
		truth := p.play(t)
		at := epoch.Add(time.Duration(seed) * 37 * time.Millisecond)
		got := p.outside(t, truth, at)
		race, any := p.race(truth)
		is := len(got.Findings) > 0 && slices.Contains(races, string(got.Findings[0].Code))
		switch {
		case is && got.Verdict == result.Found && !any:
			t.Errorf("seed %d: a false race: %s\n%s\n%s", seed, got.Sentence, p.behaviour, truth)
		case race && !slices.ContainsFunc(got.Findings, func(f result.Finding) bool { return slices.Contains(races, string(f.Code)) }):
			t.Errorf("seed %d: a race was not seen: %s %s\n%s\n%s", seed, got.Verdict, got.Sentence, p.behaviour, truth)
		case race:
			raced++
			if got.Verdict == result.Found {
				decided++
			}
		}
		for _, m := range got.Timeline {
			if !happened(truth, m, at) {
				t.Errorf("seed %d: %s %s did not happen at %s\n%s", seed, m.Container, m.Text, m.At.At, truth)
			}
		}
	}
	t.Logf("300 pods, %d with a race, of which %d were decided; none was false", raced, decided)
	if raced < 30 || decided < raced/2 {
		t.Errorf("%d races of which %d were decided: too few to say anything", raced, decided)
	}
}

// A staged is a random pod, with the behaviour of its containers in the model.
type staged struct {
	pod       *corev1.Pod
	behaviour string
}

func randomPod(r *rand.Rand) staged {
	always, one := corev1.ContainerRestartPolicyAlways, func(options ...string) string { return options[r.IntN(len(options))] }
	ms := func(most int) string { return fmt.Sprintf("%dms", 50+r.IntN(most)) }
	proxy := corev1.Container{Name: "istio-proxy", Image: "docker.io/istio/proxyv2:1.26.2"}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "istio-init", Image: proxy.Image, Args: strings.Fields("istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020")}},
			Containers:     []corev1.Container{{Name: "web", Image: "example.com/web:1.0"}},
		},
	}
	switch one("plain", "plain", "first", "hold", "native") {
	case "plain":
		pod.Spec.Containers = append(pod.Spec.Containers, proxy)
	case "first":
		pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, proxy)
	case "hold":
		proxy.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "wait"}}}}
		pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, proxy)
	case "native":
		proxy.RestartPolicy = &always
		proxy.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 600, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "ready"}}}}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, proxy)
	}
	lines := []string{"until 100s", "sandbox takes " + ms(2000), "istio-init: completes after " + ms(400),
		"istio-proxy: healthy after " + ms(6000), "istio-proxy: image takes " + ms(2000), "web: image takes " + ms(3000)}
	lines = append(lines, one("web: calls istio-proxy after "+ms(4000)+" or exits 1", "web: calls istio-proxy after "+ms(4000), "web: calls istio-proxy every 3s", "", "web: crashes after "+ms(3000)+" 2 times"))
	lines = append(lines, one("", "", "", "istio-proxy: crashes after "+fmt.Sprintf("%ds", 20+r.IntN(30))))
	return staged{pod, strings.Join(lines, "\n")}
}

func (p staged) play(t *testing.T) startup.Timeline {
	t.Helper()
	s, err := scenario.NewSubject(podfile.Object{Kind: "Pod", Name: p.pod.Name, Pod: *p.pod}, 34)
	if err != nil {
		t.Fatal(err)
	}
	b, err := scenario.ParseBehaviour("", p.behaviour, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Simulate(b)
	if err != nil {
		t.Fatal(err)
	}
	return out.Outcome.Timeline.Sorted()
}

// race reports, first, whether an available log contains a call that was refused before the proxy was first
// ready, and second, whether any log contains a call that was refused while the proxy was not ready although it
// should have been.
func (p staged) race(truth startup.Timeline) (first, any bool) {
	ready, ended := false, false
	for _, e := range truth {
		switch {
		case e.Container == "istio-proxy" && e.What == startup.IsHealthy:
			ready = true
		case e.Container == "istio-proxy" && (e.What == startup.HasFailed || e.What == startup.IsCompleted):
			ready, ended = false, true
		case e.What == startup.IsRefused && !ready:
			any = true
			first = first || !ended && e.Incarnation >= lastRun(truth, e.Container)-1
		}
	}
	return first, any
}

func lastRun(truth startup.Timeline, container string) (n int) {
	for _, e := range truth {
		if e.Container == container && e.What == startup.IsStarted {
			n = e.Incarnation
		}
	}
	return n
}

// outside returns the diagnosis of a pod from its status and logs alone.
func (p staged) outside(t *testing.T, truth startup.Timeline, epoch time.Time) result.Report {
	t.Helper()
	v, err := New(p.pod, epoch)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, e := range truth {
		at := epoch.Add(e.At)
		switch {
		case e.What == startup.IsStarted:
			v.Started(e.Container, at)
		case e.What == startup.IsCompleted:
			v.Ended(e.Container, at, 0)
		case e.What == startup.HasFailed:
			v.Ended(e.Container, at, 1)
		case e.What == startup.IsRefused:
			v.Line(e.Container, at, "error dial tcp 10.96.8.1:8080: connect: connection refused")
		case e.What == startup.IsHealthy && e.Container == "istio-proxy":
			v.Line(e.Container, at, "info Envoy proxy is ready")
		}
	}
	r, err := v.Diagnose(t.Context(), epoch.Add(100*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// happened reports whether an event in a diagnosis really happened, within the uncertainty of its time.
func happened(truth startup.Timeline, m result.Moment, epoch time.Time) bool {
	return slices.ContainsFunc(truth, func(e startup.Event) bool {
		at := epoch.Add(e.At)
		is := map[startup.What]string{startup.IsStarted: "starts", startup.IsCompleted: "ends: exit code 0", startup.HasFailed: "ends: exit code 1", startup.IsHealthy: "is ready"}[e.What]
		if e.What == startup.IsRefused {
			is = "refused"
		}
		return e.Container == m.Container && is != "" && strings.Contains(m.Text, is) && !at.Before(m.At.At) && !at.After(m.At.Latest())
	})
}
