package simulate

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

func TestTheSameScenarioHasTheSameOutcome(t *testing.T) {
	s := twentyContainers(t)
	one, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Run(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("two runs (-one +two):\n%s", diff)
	}
	if len(one.Violations) > 0 || one.Restarts() > 0 || one.Refused() > 0 {
		t.Errorf("%d violations, %d restarts, %d refused\n%s", len(one.Violations), one.Restarts(), one.Refused(), one.Timeline)
	}
}

// Each clause about a container leads to the expected events.
func TestClauses(t *testing.T) {
	tests := map[string]struct {
		text string
		want startup.What // of app
		at   time.Duration
	}{
		"cannot start":                         {"app: cannot start", startup.HasFailed, 0},
		"image takes":                          {"app: image takes 3s", startup.IsStarted, 3 * time.Second},
		"image missing until":                  {"app: image missing until 5s", startup.IsStarted, 11 * time.Second},
		"killed at, when it runs":              {"app: killed at 3s", startup.HasFailed, 3 * time.Second},
		"unhealthy":                            {"app: unhealthy after 2s", startup.IsUnhealthy, 2 * time.Second},
		"completes":                            {"app: completes after 4s", startup.IsCompleted, 4 * time.Second},
		"stops":                                {"app: stops after 3s\ndeleted at 5s", startup.IsCompleted, 8 * time.Second},
		"ignores sigterm":                      {"app: ignores sigterm\ndeleted at 5s", startup.HasFailed, 35 * time.Second},
		"a call is refused":                    {"app: calls proxy after 1s\nproxy: never healthy", startup.IsRefused, time.Second},
		"a call is refused, and it exits":      {"app: calls proxy after 1s or exits 3\nproxy: never healthy", startup.HasFailed, time.Second},
		"a call is refused in the end":         {"app: calls proxy every 1s\nproxy: killed at 2500ms", startup.IsRefused, 3 * time.Second},
		"sandbox takes":                        {"sandbox takes 2s", startup.IsStarted, 2 * time.Second},
		"a kill of one that does not run":      {"app: image takes 3s, killed at 1s", startup.IsStarted, 3 * time.Second},
		"an end that SIGKILL comes before":     {"app: killed at 1s, completes after 4s", startup.HasFailed, time.Second},
		"health that comes back after a while": {"app: unhealthy after 1s for 2s", startup.IsUnhealthy, time.Second},
	}
	plan, err := startup.Parse("container app is plain\ncontainer proxy is plain")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := Parse("kubernetes 1.34\n" + tt.text)
			if err != nil {
				t.Fatal(err)
			}
			o, err := Run(Scenario{Pod: PodOf(plan), Plan: plan, Behaviour: b})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range o.Timeline {
				if e.Container == "app" && e.What == tt.want {
					if e.At != tt.at {
						t.Errorf("%s at %s, want %s\n%s", tt.want, e.At, tt.at, o.Timeline)
					}
					return
				}
			}
			t.Errorf("app is never %s\n%s", tt.want, o.Timeline)
		})
	}
}

// twentyContainers returns a pod with 5 native sidecars, and 15 applications behind gates.
func twentyContainers(t testing.TB) Scenario {
	t.Helper()
	text := ""
	b := Behaviour{Kubernetes: 34, Until: 30 * time.Second, Containers: map[string]Container{}}
	for i := range 5 {
		text += fmt.Sprintf("container sidecar%d is sidecar, healthy by startup-probe\n", i)
		b.Containers[fmt.Sprint("sidecar", i)] = Container{Healthy: 700 * time.Millisecond}
	}
	for i := range 15 {
		text += fmt.Sprintf("container app%d is plain, healthy by readiness-probe\n", i)
	}
	for i := range 14 {
		text += fmt.Sprintf("app%d after app%d is healthy, by gate\n", i, i+1)
		b.Containers[fmt.Sprint("app", i)] = Container{Healthy: 100 * time.Millisecond, Calls: []Call{{To: fmt.Sprint("app", i+1), Exits: true, Code: 1}}}
	}
	plan, err := startup.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Scenario{Pod: PodOf(plan), Plan: plan, Behaviour: b}
}

// BenchmarkRun simulates 30 s of a pod with 20 containers.
func BenchmarkRun(b *testing.B) {
	s := twentyContainers(b)
	for b.Loop() {
		if _, err := Run(s); err != nil {
			b.Fatal(err)
		}
	}
}

// Failures of a container's liveness probe are ignored while its gate waits. They count from the moment at which the
// gate opens, not only from the next run of the startup probe.
func TestAWaitingGateIsNotKilledForItsLiveness(t *testing.T) {
	liveness := kubelet.Probe{Handler: kubelet.HTTPGet, Period: time.Second, Failures: 2}
	gate := kubelet.Probe{Handler: kubelet.Gate, Period: time.Second, Timeout: 10 * time.Second, Failures: math.MaxInt32}
	const plain, sidecar = "plain", "sidecar"
	held := liveness
	held.Handler = kubelet.Gate
	tests := map[string]struct {
		app  kubelet.Container
		kind string
		text string
		want int // number of times that app ends
	}{
		"behind a startup probe":                  {app: kubelet.Container{Startup: gate, Liveness: liveness}, kind: plain},
		"behind one, and it hangs later":          {app: kubelet.Container{Startup: gate, Liveness: liveness}, kind: plain, text: "app: unhealthy after 1s for 5s", want: 1},
		"behind one, and its gate is killed":      {app: kubelet.Container{Startup: gate, Liveness: liveness}, kind: plain, text: "app: killed at 10s", want: 1},
		"a sidecar that is held":                  {app: kubelet.Container{Restart: kubelet.Always, Liveness: held}, kind: sidecar},
		"a sidecar that is held, and hangs later": {app: kubelet.Container{Restart: kubelet.Always, Liveness: held}, kind: sidecar, text: "app: unhealthy after 1s for 5s", want: 1},
		"neither": {app: kubelet.Container{Liveness: liveness}, kind: plain, want: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan, err := startup.Parse("container proxy is plain\ncontainer app is " + tt.kind + "\napp after proxy is healthy, by gate")
			if err != nil {
				t.Fatal(err)
			}
			b, err := Parse("until 40s\nproxy: healthy after 22s\n" + tt.text)
			if err != nil {
				t.Fatal(err)
			}
			tt.app.Name = "app"
			pod := kubelet.Pod{Containers: []kubelet.Container{{Name: "proxy"}, tt.app}}
			if tt.kind == sidecar {
				pod = kubelet.Pod{Init: pod.Containers[1:], Containers: pod.Containers[:1]}
			}
			o, err := Run(Scenario{Pod: pod, Plan: plan, Behaviour: b})
			if err != nil {
				t.Fatal(err)
			}
			ends := 0
			for _, e := range o.Timeline {
				if e.Container == "app" && (e.What == startup.HasFailed || e.What == startup.IsCompleted) {
					ends++
				}
			}
			if ends != tt.want {
				t.Errorf("app ended %d times, want %d\n%s", ends, tt.want, o.Timeline)
			}
		})
	}
}
