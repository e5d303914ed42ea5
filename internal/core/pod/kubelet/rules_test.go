package kubelet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

const sec = time.Second

// play simulates a pod with the given spec. The parameter behaviour describes the environment.
func play(t *testing.T, spec, behaviour string) simulate.Outcome {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	reading, err := podspec.Read(&pod)
	if err != nil {
		t.Fatal(err)
	}
	b, err := simulate.Parse(behaviour)
	if err != nil {
		t.Fatal(err)
	}
	o, err := simulate.Run(simulate.Scenario{Pod: podrun.Lifecycle(&pod), Plan: startup.Plan{Containers: reading.Plan().Containers}, Behaviour: b})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// when returns the times of an event of the app.
func when(o simulate.Outcome, what startup.What) (out []time.Duration) {
	for _, e := range o.Timeline {
		if e.Container == "app" && e.What == what {
			out = append(out, e.At)
		}
	}
	return out
}

// The model follows rules that no recorded trace covers.
func TestRules(t *testing.T) {
	tests := map[string]struct{ pod, behaviour, want string }{
		"before 1.29 a sidecar is an init container that never completes": {
			"{initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: app}]}",
			"kubernetes 1.28\nuntil 1h",
			"0s proxy started"},
		"an image that is missing holds back no other container, and a start that fails is retried": {
			"{containers: [{name: a}, {name: b}, {name: c}]}",
			"kubernetes 1.34\nuntil 15s\na: image missing\nb: cannot start",
			"0s b failed, 0s c started, 1s b failed, 12s b failed"},
		"a start that fails is final with Never": {
			"{restartPolicy: Never, containers: [{name: proxy}, {name: app}]}",
			"kubernetes 1.34\nuntil 1h\napp: cannot start",
			"0s proxy started, 0s app failed"},
		"with OnFailure, a new sandbox does not run again what succeeded": {
			"{restartPolicy: OnFailure, containers: [{name: a}, {name: b}]}",
			"kubernetes 1.34\nuntil 20s\nsandbox dies at 10s\na: completes after 5s",
			"0s a started, 0s b started, 5s a completed, 10s b failed, 11s sandbox, 11s b started"},
		"a container whose start comes after the death of its sandbox has not started": {
			"{containers: [{name: a}, {name: b}]}",
			"kubernetes 1.34\nuntil 15s\nsandbox dies at 1s\nb: image takes 2s",
			"0s a started, 1s a failed, 2s b failed, 3s sandbox, 3s a started, 5s b started"},
		"while a container is being killed, with the grace period of the pod, no other one is restarted": {
			"{containers: [{name: slow, livenessProbe: {exec: {command: [check]}, periodSeconds: 1, failureThreshold: 1}}, {name: app}]}",
			"kubernetes 1.34\nuntil 15s\nslow: unhealthy after 3.5s, stops after 7s\napp: crashes after 4.5s",
			"0s slow started, 0s app started, 3.5s slow unhealthy, 4s slow stopping, 4.5s app failed, 11s slow completed, 11s slow started, 12s app started"},
		"a probe runs every 10 s and fails three times by default": {
			"{containers: [{name: app, livenessProbe: {exec: {command: [check]}}}]}",
			"kubernetes 1.34\nuntil 40s\napp: unhealthy after 15s",
			"0s app started, 15s app unhealthy, 40s app stopping, 40s app completed, 40s app started"},
		"the delay of a probe counts from the start of the container": {
			"{containers: [{name: app, livenessProbe: {exec: {command: [check]}, initialDelaySeconds: 5, periodSeconds: 3, failureThreshold: 1}}]}",
			"kubernetes 1.34\nuntil 6s\napp: unhealthy after 1s",
			"0s app started, 1s app unhealthy, 6s app stopping, 6s app completed, 6s app started"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range play(t, tt.pod, tt.behaviour).Timeline {
				if e.What != startup.IsHealthy && e.What != startup.IsWaiting && e.What != startup.HasAddress {
					got = append(got, strings.Join(strings.Fields(e.At.String()+" "+e.Container+" "+string(e.What)), " "))
				}
			}
			if diff := cmp.Diff(strings.Split(tt.want, ", "), got); diff != "" {
				t.Errorf("timeline (-want +got):\n%s", diff)
			}
		})
	}
}

// The time from the readiness of the proxy, 0.1 s after its start, to the start of the app agrees with the median
// of 8 starts on real kubelets, v1.34.4 and v1.36.3. The difference must be at most 0.15 s, since the model has
// no latency apart from its rules.
func TestWhatEachWayOfOrderingCosts(t *testing.T) {
	tests := map[string]struct {
		pod            string
		on1_34, on1_36 time.Duration
	}{
		"native sidecar, startup probe every second": {
			"{initContainers: [{name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [check]}, periodSeconds: 1}}], containers: [{name: app}]}",
			1890 * time.Millisecond, 890 * time.Millisecond},
		"native sidecar, blocking postStart": {
			"{initContainers: [{name: proxy, restartPolicy: Always, lifecycle: {postStart: {exec: {command: [wait]}}}}], containers: [{name: app}]}",
			920 * time.Millisecond, 100 * time.Millisecond},
		"hold": {
			"{containers: [{name: proxy, lifecycle: {postStart: {exec: {command: [wait]}}}}, {name: app}]}",
			110 * time.Millisecond, 80 * time.Millisecond},
	}
	for name, tt := range tests {
		for version, measured := range map[string]time.Duration{"1.34": tt.on1_34, "1.36": tt.on1_36} {
			t.Run(name+" "+version, func(t *testing.T) {
				// The pass begins just after a relist. The same is true for the measured pods, where a relist
				// had caused the pass.
				o := play(t, tt.pod, "kubernetes "+version+"\nbegins at 10ms\nuntil 10s\nproxy: healthy after 100ms")
				if got := when(o, startup.IsStarted)[0] - 110*time.Millisecond; (got - measured).Abs() > 150*time.Millisecond {
					t.Errorf("the app starts %s after the proxy is ready; measured: %s\n%s", got, measured, o.Timeline)
				}
			})
		}
	}
}

// In 1.36, while a container has a long back-off, the pass is repeated each minute.
func TestALongBackOff(t *testing.T) {
	o := play(t, "{containers: [{name: app}]}", "kubernetes 1.36\nuntil 10m\napp: crashes after 1s 6 times")
	last := when(o, startup.HasFailed)[5].Truncate(sec)
	var since []time.Duration
	for _, at := range when(o, startup.IsWaiting) {
		if at > last {
			since = append(since, at-last)
		}
	}
	if diff := cmp.Diff([]time.Duration{sec, 61 * sec, 121 * sec}, since); diff != "" {
		t.Errorf("passes in a back-off of 160 s (-want +got):\n%s", diff)
	}
}

func TestImagePullBackOff(t *testing.T) {
	var pulls []time.Duration
	for _, p := range play(t, "{containers: [{name: app, imagePullPolicy: IfNotPresent}]}", "kubernetes 1.34\napp: image missing").Pulls {
		pulls = append(pulls, p.From)
	}
	want := []time.Duration{0, 11 * sec, 31 * sec, 71 * sec} // each failed pass delays the next one
	if diff := cmp.Diff(want, pulls); diff != "" {
		t.Errorf("pulls (-want +got):\n%s", diff)
	}
}

// Probes run at the times that follow from the kubelet's rules, also in cases without a trace.
func TestProbes(t *testing.T) {
	every := func(seconds time.Duration) kubelet.Probe {
		return kubelet.Probe{Handler: kubelet.Exec, Period: seconds * sec, Failures: 1}
	}
	tests := map[string]struct {
		app     kubelet.Container
		event   kubelet.Event // an event in addition to the answers
		answers func(at time.Duration) (ok, answered bool)
		want    map[kubelet.Which][]time.Duration // times of the runs in the first 9 s
		stop    time.Duration
	}{
		"until the startup probe succeeds, no other one runs, and it then ends": {
			app:     kubelet.Container{Startup: kubelet.Probe{Handler: kubelet.Exec, Period: 2 * sec}, Liveness: every(2)},
			answers: func(at time.Duration) (bool, bool) { return at > 3*sec, true },
			want:    map[kubelet.Which][]time.Duration{kubelet.Startup: {2 * sec, 4 * sec}, kubelet.Liveness: {6 * sec, 8 * sec}},
		},
		"while the pod stops, only readiness is probed": {
			app:     kubelet.Container{Readiness: every(2), Liveness: every(2)},
			event:   kubelet.Event{At: 5500 * time.Millisecond, Kind: kubelet.Deleted},
			answers: func(time.Duration) (bool, bool) { return true, true },
			want:    map[kubelet.Which][]time.Duration{kubelet.Readiness: {sec, 3 * sec, 5 * sec, 7 * sec, 9 * sec}, kubelet.Liveness: {2 * sec, 4 * sec}},
			stop:    5500 * time.Millisecond,
		},
		"a probe that does not answer within its timeout fails": {
			app:     kubelet.Container{Liveness: kubelet.Probe{Handler: kubelet.Exec, Period: 5 * sec, Timeout: 2 * sec, Failures: 1}},
			answers: func(time.Duration) (bool, bool) { return false, false },
			want:    map[kubelet.Which][]time.Duration{kubelet.Liveness: {5 * sec}},
			stop:    7 * sec,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.app.Name = "app"
			s := kubelet.New(kubelet.Pod{Containers: []kubelet.Container{tt.app}}, kubelet.Minor(34))
			queue := []kubelet.Event{{Kind: kubelet.Added}}
			sent, stop := map[kubelet.Which][]time.Duration{}, time.Duration(0)
			for len(queue) > 0 && queue[0].At <= 9*sec {
				var actions []kubelet.Action
				s, actions = s.Step(queue[0])
				queue = queue[1:]
				for _, a := range actions {
					e, answered := a.Answer(a.At, true)
					switch a.Kind {
					case kubelet.RunProbe:
						sent[a.Which] = append(sent[a.Which], a.At)
						e.OK, answered = tt.answers(a.At)
					case kubelet.Stop:
						stop, answered = a.At, false
					}
					if answered {
						queue = append(queue, e)
					}
				}
				if next, ok := s.Next(); ok && len(queue) == 0 {
					queue = append(queue, kubelet.Event{At: next, Kind: kubelet.Tick})
					if tt.event.Kind != "" && tt.event.At <= next {
						queue[0], tt.event = tt.event, kubelet.Event{}
					}
				}
			}
			if diff := cmp.Diff(tt.want, sent); diff != "" || stop != tt.stop {
				t.Errorf("SIGTERM at %s, want %s; probes (-want +got):\n%s", stop, tt.stop, diff)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for minor, want := range map[int]kubelet.Version{
		27: {Minor: 28, Relist: sec},
		28: {Minor: 28, Relist: sec},
		33: {Minor: 33, Relist: sec, Sidecars: true},
		35: {Minor: 35, Relist: sec, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true},
		99: {Minor: 36, Relist: sec, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true, FreshAtOnce: true, StaysInitialized: true},
	} {
		if diff := cmp.Diff(want, kubelet.Minor(minor)); diff != "" {
			t.Errorf("1.%d (-want +got):\n%s", minor, diff)
		}
	}
}
