package diagnose

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/model/scenario"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// races are the codes of calls that came before the proxy was ready.
var races = []string{"startup-race", "hold-fails-open", "hold-without-effect"}

// A model of the kubelet plays 300 random pods with random faults. A diagnosis gets only what an
// operator sees of each: whole seconds in the status, the logs of two runs. Its timeline has to be the
// true one, and it must see a race where one was, and nowhere else.
func TestRoundTrip(t *testing.T) {
	epoch := time.Date(2026, 3, 2, 13, 16, 12, 0, time.UTC)
	raced, decided := 0, 0
	for seed := range uint64(300) {
		p := randomPod(rand.New(rand.NewPCG(seed, 17)))
		truth := p.play(t)
		at := epoch.Add(time.Duration(seed) * 37 * time.Millisecond)
		folder := t.TempDir()
		p.record(t, folder, truth, at)
		got := diagnoseFolder(t, folder)
		race, any := p.race(truth)
		is := len(got.Findings) > 0 && slices.Contains(races, string(got.Findings[0].Code))
		switch {
		case is && got.Verdict == Found && !any:
			t.Errorf("seed %d: a false race: %s\n%s\n%s", seed, got.Sentence, p.behaviour, truth)
		case race && !slices.ContainsFunc(got.Findings, func(f Finding) bool { return slices.Contains(races, string(f.Code)) }):
			t.Errorf("seed %d: a race was not seen: %s %s\n%s\n%s", seed, got.Verdict, got.Sentence, p.behaviour, truth)
		case race:
			raced++
			if got.Verdict == Found {
				decided++
			}
		}
		for _, m := range got.Timeline {
			if !happened(truth, m, at) {
				t.Errorf("seed %d: %s %s did not happen at %s\n%s", seed, m.Container, m.Text, instant(m.At), truth)
			}
		}
	}
	t.Logf("300 pods, %d with a race, of which %d were decided; none was false", raced, decided)
	if raced < 30 || decided < raced/2 {
		t.Errorf("%d races of which %d were decided: too few to say anything", raced, decided)
	}
}

// A staged pod and how it behaves.
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
	s, err := scenario.NewSubject(podspec.Object{Kind: "Pod", Name: p.pod.Name, Pod: *p.pod}, 34)
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

// race reports whether a log that is kept has a call that was refused before the first proxy was ready,
// and whether any has one while a proxy that was to come was not ready yet.
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

// record writes what an operator has of a pod.
func (p staged) record(t *testing.T, folder string, truth startup.Timeline, epoch time.Time) {
	t.Helper()
	pod := p.pod.DeepCopy()
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: epoch.Truncate(time.Second)}
	logs := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		last := lastRun(truth, c.Name)
		status := corev1.ContainerStatus{Name: c.Name, RestartCount: int32(last)}
		for _, e := range truth {
			if e.Container != c.Name || e.Incarnation < last-1 {
				continue
			}
			file, state := c.Name+".log", &status.State
			if e.Incarnation < last {
				file, state = c.Name+".previous.log", &status.LastTerminationState
			}
			observe(state, e, metav1.Time{Time: epoch.Add(e.At).Truncate(time.Second)})
			line := map[startup.What]string{startup.IsRefused: "error\tdial tcp 10.96.8.1:8080: connect: connection refused"}[e.What]
			if e.What == startup.IsHealthy && c.Name == "istio-proxy" {
				line = "info\tEnvoy proxy is ready"
			}
			if line != "" {
				logs[file] += epoch.Add(e.At).Format("2006-01-02T15:04:05.000000Z") + "\t" + line + "\n"
			}
		}
		if slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status)
		} else {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
		}
	}
	object, err := json.Marshal(pod)
	logs["pod.json"] = string(object)
	for name, text := range logs { // any order: each is a file of its own
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// observe puts an event into the state that the kubelet reports.
func observe(s *corev1.ContainerState, e startup.Event, at metav1.Time) {
	switch e.What {
	case startup.IsStarted:
		s.Running = &corev1.ContainerStateRunning{StartedAt: at}
	case startup.IsCompleted, startup.HasFailed:
		end := corev1.ContainerStateTerminated{FinishedAt: at, Reason: "Completed"}
		if s.Running != nil {
			end.StartedAt = s.Running.StartedAt
		}
		if e.What == startup.HasFailed {
			end.Reason, end.ExitCode = "Error", 1
		}
		s.Running, s.Terminated = nil, &end
	}
}

// happened reports whether a line of a diagnosis' timeline is what was, within the error that it has.
func happened(truth startup.Timeline, m Moment, epoch time.Time) bool {
	return slices.ContainsFunc(truth, func(e startup.Event) bool {
		at := epoch.Add(e.At).Truncate(time.Microsecond)
		is := map[startup.What]string{startup.IsStarted: "starts", startup.IsCompleted: "ends: exit code 0", startup.HasFailed: "ends: exit code 1", startup.IsHealthy: "is ready"}[e.What]
		if e.What == startup.IsRefused {
			is = string(refused)
		}
		return e.Container == m.Container && is != "" && strings.Contains(m.Text, is) && !at.Before(m.At.At) && !at.After(m.At.Latest())
	})
}

// The replay shows the race that was, and that the remedy ends it.
func TestReplay(t *testing.T) {
	annotated := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, folder string) { edit(t, filepath.Join(folder, "pod.yaml"), from, to) }
	}
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		code   string
		by     startup.Mechanism
		patch  string
	}{
		"a classic proxy":             {nil, "startup-race", startup.Hold, "holdApplicationUntilProxyStarts"},
		"a hold that the pod has not": {annotated("metadata:\n", "metadata:\n  annotations: {proxy.istio.io/config: 'holdApplicationUntilProxyStarts: true'}\n"), "hold-without-effect", startup.Native, "nativeSidecar"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/awesome-app")); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(t, folder)
			}
			f := diagnoseFolder(t, folder).Findings[0]
			if string(f.Code) != c.code || !strings.Contains(f.Patch, c.patch) || (f.Patch == "") != (c.patch == "") {
				t.Errorf("%s with the patch %q, want %s with %s", f.Code, f.Patch, c.code, c.patch)
			}
			if f.Replay == nil {
				t.Fatal("no replay")
			}
			if r := *f.Replay; r.Mechanism != c.by || r.AsItWas.Refused == 0 || r.AsItWas.Restarts == 0 || r.Remedied.Refused != 0 || r.Remedied.Restarts != 0 || r.Remedied.Runs >= r.AsItWas.Runs {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Containers that began before what they are to wait for are found by the plan, without a failed call.
func TestOrderBroken(t *testing.T) {
	for name, c := range map[string]struct {
		annotation, start string
		want              string
	}{
		"declared, and nothing keeps it": {"outrider.dev/depends-on.web: istio-proxy", "13:16:21Z", "found order-not-kept"},
		"within the clocks' error":       {"outrider.dev/depends-on.web: istio-proxy", "13:16:22Z", "nothing"},
		"declared, and kept":             {"outrider.dev/depends-on.web: istio-proxy", "13:16:24Z", "nothing"},
		"not declared":                   {"a: b", "13:16:21Z", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/clean")); err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(folder, "pod.yaml"), "metadata:\n", "metadata:\n  annotations: {"+c.annotation+"}\n")
			edit(t, filepath.Join(folder, "pod.yaml"), "13:16:24Z", c.start)
			if got := key(diagnoseFolder(t, folder)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func edit(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(text), from) {
		err = fmt.Errorf("%s has no %q", file, from)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
