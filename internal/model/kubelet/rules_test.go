package kubelet

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

// The kubelet's rules, one sentence each, by the source that the code names.
func TestRules(t *testing.T) {
	long := 30 * time.Minute
	deleted := []Event{{At: 10 * sec, Kind: Deleted}}
	sidecarAndApp := Pod{Init: []Container{nativeProxy}, Containers: appOnly}
	tests := map[string]struct {
		pod     Pod
		version int // default 34
		world   world
		want    []string
		phases  []Phase
	}{
		"init containers run one after the other": {
			pod: Pod{Init: []Container{{Name: "a"}, {Name: "b"}}, Containers: appOnly},
			world: world{until: 10 * sec, containers: map[string]behaviour{
				"a": {lives: []time.Duration{500 * ms}}, "b": {lives: []time.Duration{sec}}}},
			want:   []string{"0s a started", "500ms a completed", "1s b started", "2s b completed", "3s app started"},
			phases: []Phase{Pending, Running},
		},
		"an init container that fails is tried again, at once, then with back-off": {
			pod:    Pod{Init: []Container{{Name: "a"}}, Containers: appOnly},
			world:  world{until: 20 * sec, containers: map[string]behaviour{"a": {lives: []time.Duration{500 * ms, 500 * ms, long}, code: 1}}},
			want:   []string{"0s a started", "500ms a failed", "1s a started", "1.5s a failed", "12s a started"},
			phases: []Phase{Pending},
		},
		"with Never, an init container that fails ends the pod": {
			pod:    Pod{Restart: Never, Init: []Container{nativeProxy, {Name: "a"}}, Containers: appOnly},
			world:  world{until: time.Minute, containers: map[string]behaviour{"a": {lives: []time.Duration{500 * ms}, code: 1}}},
			want:   []string{"0s proxy started", "1s a started", "1.5s a failed", "3s proxy stopping", "3s proxy completed"},
			phases: []Phase{Pending, Failed},
		},
		"a sidecar holds the next init container until its startup probe succeeds; readiness never counts": {
			pod: Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: Probe{Handler: Exec, Period: sec, Failures: 9}, Readiness: Probe{Handler: HTTPGet}}, {Name: "a"}},
				Containers: appOnly},
			world: world{until: 10 * sec, containers: map[string]behaviour{"proxy": {healthy: 3500 * ms}, "a": {lives: []time.Duration{500 * ms}}}},
			want:  []string{"0s proxy started", "4s a started", "4.5s a completed", "5s app started"},
		},
		"a sidecar whose image is missing holds the pod": {
			pod:    sidecarAndApp,
			world:  world{until: time.Minute, containers: map[string]behaviour{"proxy": {imageAt: 25 * sec}}},
			want:   []string{"31s proxy started", "32s app started"},
			phases: []Phase{Pending, Running},
		},
		"before 1.29 a sidecar is an init container that never completes": {
			pod: sidecarAndApp, version: 28,
			world:  world{until: time.Hour},
			want:   []string{"0s proxy started"},
			phases: []Phase{Pending},
		},
		"an init container that cannot be pulled ends the pass; a plain one does not": {
			pod: Pod{Containers: []Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
			world: world{until: 15 * sec, containers: map[string]behaviour{
				"a": {imageAt: time.Hour}, "b": {broken: true}}},
			want: []string{"0s b failed", "0s c started", "1s b failed", "12s b failed"},
		},
		"a start that fails is final with Never": {
			pod:    Pod{Restart: Never, Containers: []Container{{Name: "proxy"}, {Name: "app"}}},
			world:  world{until: time.Hour, containers: map[string]behaviour{"app": {broken: true}}},
			want:   []string{"0s proxy started", "0s app failed"},
			phases: []Phase{Pending, Running},
		},
		"OnFailure restarts only what failed": {
			pod: Pod{Restart: OnFailure, Containers: []Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
			world: world{until: time.Hour, containers: map[string]behaviour{
				"a": {lives: []time.Duration{1500 * ms}}, "b": {lives: []time.Duration{1500 * ms}, code: 1}}},
			want: []string{"0s a started", "0s b started", "0s c started", "1.5s a completed", "1.5s b failed", "2s b started"},
		},
		"a container may have a policy of its own from 1.35": {
			pod: Pod{Restart: Never, Containers: []Container{{Name: "a", Restart: Always}, {Name: "b"}}}, version: 35,
			world: world{until: 5 * sec, containers: map[string]behaviour{
				"a": {lives: []time.Duration{1500 * ms}}, "b": {lives: []time.Duration{1500 * ms}}}},
			want: []string{"0s a started", "0s b started", "1.5s a completed", "1.5s b completed", "2s a started"},
		},
		"and not before": {
			pod: Pod{Restart: Never, Containers: []Container{{Name: "a", Restart: Always}, {Name: "b"}}},
			world: world{until: 5 * sec, containers: map[string]behaviour{
				"a": {lives: []time.Duration{1500 * ms}}, "b": {lives: []time.Duration{1500 * ms}}}},
			want:   []string{"0s a started", "0s b started", "1.5s a completed", "1.5s b completed"},
			phases: []Phase{Pending, Running, Succeeded},
		},
		"a lone app is not held for a dead sidecar if an init container follows it": {
			pod: Pod{Init: []Container{nativeProxy, {Name: "migrate"}}, Containers: appOnly},
			world: world{until: 15 * sec, containers: map[string]behaviour{
				"proxy": {lives: []time.Duration{5 * sec, sec}, code: 1}, "migrate": {lives: []time.Duration{500 * ms}},
				"app": {lives: []time.Duration{8 * sec}, code: 1}}},
			want: []string{"0s proxy started", "1s migrate started", "1.5s migrate completed", "2s app started",
				"5s proxy failed", "6s proxy started", "7s proxy failed", "10s app failed", "11s app started"},
		},
		"a sidecar that liveness kills does not hold an app that has ended": {
			pod: Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond,
				Liveness: Probe{Handler: Exec, Period: sec, Failures: 1}}}, Containers: appOnly},
			world: world{begin: 300 * ms, until: 9 * sec, containers: map[string]behaviour{
				"proxy": {sickAt: 5100 * ms, stops: 500 * ms}, "app": {lives: []time.Duration{4100 * ms}, code: 1}}},
			want: []string{"300ms proxy started", "2s app started", "5.4s proxy unhealthy", "6.1s app failed",
				"6.3s proxy stopping", "6.8s proxy completed", "6.8s proxy started", "6.8s app started"},
		},
		"while a container is being killed, no other one is restarted": {
			pod: Pod{Containers: []Container{{Name: "slow", Liveness: Probe{Handler: Exec, Period: sec, Failures: 1}}, {Name: "app"}}},
			world: world{until: 15 * sec, containers: map[string]behaviour{
				"slow": {sickAt: 3500 * ms, stops: 7 * sec}, "app": {lives: []time.Duration{4500 * ms}, code: 1}}},
			want: []string{"0s slow started", "0s app started", "3.5s slow unhealthy", "4s slow stopping", "4.5s app failed",
				"11s slow completed", "11s slow started", "12s app started"},
		},
		"a new sandbox begins again with the first init container": {
			pod: Pod{Init: []Container{{Name: "a"}, nativeProxy}, Containers: appOnly},
			world: world{until: 20 * sec, script: []Event{{At: 10 * sec, Kind: SandboxDied}},
				containers: map[string]behaviour{"a": {lives: []time.Duration{500 * ms, 500 * ms}}}},
			want: []string{"0s a started", "500ms a completed", "1s proxy started", "2s app started",
				"10s proxy failed", "10s app failed", "11s sandbox",
				"11s a started", "11.5s a completed", "12s proxy started", "13s app started"},
			phases: []Phase{Pending, Running, Pending, Running},
		},
		"with Never there is no second sandbox": {
			pod:    Pod{Restart: Never, Containers: appOnly},
			world:  world{until: time.Minute, script: []Event{{At: 10 * sec, Kind: SandboxDied}}},
			want:   []string{"0s app started", "10s app failed"},
			phases: []Phase{Pending, Running, Failed},
		},
		"with Never, a pod that loses its sandbox while it is initialized is stuck": {
			pod: Pod{Restart: Never, Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}}, Containers: appOnly},
			world: world{until: time.Hour, script: []Event{{At: 500 * ms, Kind: SandboxDied}},
				containers: map[string]behaviour{"proxy": {healthy: time.Hour}}},
			want:   []string{"0s proxy started", "500ms proxy failed"},
			phases: []Phase{Pending},
		},
		"with OnFailure, a new sandbox does not run again what succeeded": {
			pod: Pod{Restart: OnFailure, Containers: []Container{{Name: "a"}, {Name: "b"}}},
			world: world{until: 20 * sec, script: []Event{{At: 10 * sec, Kind: SandboxDied}},
				containers: map[string]behaviour{"a": {lives: []time.Duration{5 * sec}}}},
			want: []string{"0s a started", "0s b started", "5s a completed", "10s b failed", "11s sandbox", "11s b started"},
		},
		"sidecars stop in reverse order, after all plain containers": {
			pod: Pod{Init: []Container{nativeProxy, {Name: "vault", Restart: Always}}, Containers: []Container{{Name: "app"}, {Name: "web"}}},
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{
				"app": {stops: sec}, "web": {stops: 4 * sec}, "vault": {stops: 2 * sec}, "proxy": {stops: sec}}},
			want: []string{"0s proxy started", "1s vault started", "2s app started", "2s web started", "10s deleted",
				"10s app stopping", "10s web stopping", "11s app completed", "14s web completed",
				"14s vault stopping", "16s vault completed", "16s proxy stopping", "17s proxy completed"},
		},
		"an app that uses up the grace period leaves its sidecars two seconds": {
			pod: Pod{Init: []Container{nativeProxy, {Name: "vault", Restart: Always}}, Containers: appOnly, Grace: 5 * sec},
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{
				"app": {stops: never}, "vault": {stops: never}, "proxy": {stops: never}}},
			want: []string{"0s proxy started", "1s vault started", "2s app started", "10s deleted", "10s app stopping",
				"15s proxy stopping", "15s vault stopping", "15s app failed", "17s proxy failed", "17s vault failed"},
		},
		"a preStop hook uses up the grace period of its container, in whole seconds": {
			pod: Pod{Containers: []Container{{Name: "app", PreStop: Exec}}, Grace: 8 * sec},
			world: world{until: time.Minute, script: deleted,
				containers: map[string]behaviour{"app": {preStop: 3500 * ms, stops: never}}},
			want: []string{"0s app started", "10s deleted", "13.5s app stopping", "18.5s app failed"},
		},
		"a preStop hook that never ends is cut off, and two seconds are left": {
			pod: Pod{Containers: []Container{{Name: "app", PreStop: Exec}}, Grace: 5 * sec},
			world: world{until: time.Minute, script: deleted,
				containers: map[string]behaviour{"app": {preStop: time.Hour, stops: never}}},
			want: []string{"0s app started", "10s deleted", "15s app stopping", "17s app failed"},
		},
		"an init container that still runs is not waited for by the sidecar": {
			pod:   Pod{Init: []Container{nativeProxy, {Name: "migrate"}}, Containers: appOnly},
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{"migrate": {stops: 4 * sec}}},
			want: []string{"0s proxy started", "1s migrate started", "10s deleted", "10s migrate stopping", "10s proxy stopping",
				"10s proxy completed", "14s migrate completed"},
		},
		"a sidecar that ends early while the pod stops is not restarted": {
			pod: sidecarAndApp,
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{
				"proxy": {lives: []time.Duration{12 * sec}, code: 1}, "app": {stops: 5 * sec}}},
			want: []string{"0s proxy started", "1s app started", "10s deleted", "10s app stopping", "12s proxy failed", "15s app completed"},
		},
		"liveness is not probed while the pod stops": {
			pod: Pod{Containers: []Container{{Name: "app", Liveness: Probe{Handler: Exec, Period: sec, Failures: 1}}}},
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{
				"app": {sickAt: 10500 * ms, stops: 8 * sec}}},
			want: []string{"0s app started", "10s deleted", "10s app stopping", "10.5s app unhealthy", "18s app completed"},
		},
		"deletion waits for a hook that blocks": {
			pod:   Pod{Containers: []Container{{Name: "app", PostStart: Exec}}},
			world: world{until: time.Minute, script: deleted, containers: map[string]behaviour{"app": {hook: 25 * sec}}},
			want:  []string{"0s app started", "10s deleted", "26s app stopping", "26s app completed"},
		},
		"a container whose postStart fails is given the whole grace period, and the next one waits": {
			pod:   Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}, Grace: 7 * sec},
			world: world{until: 9 * sec, containers: map[string]behaviour{"proxy": {hook: sec, hookFails: true, stops: never}}},
			want:  []string{"0s proxy started", "1s proxy hook-failed", "1s proxy stopping", "8s proxy failed", "8s app started", "9s proxy started"},
		},
		"a sidecar that starts again does not put the pod back to Pending": {
			pod: Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}}, Containers: appOnly},
			world: world{until: 20 * sec, containers: map[string]behaviour{
				"proxy": {healthy: 500 * ms, lives: []time.Duration{5 * sec}, code: 1}}},
			want:   []string{"0s proxy started", "2s app started", "5s proxy failed", "6s proxy started"},
			phases: []Phase{Pending, Running},
		},
		"an exec hook dies with its container": {
			pod: Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}},
			world: world{until: 4 * sec, containers: map[string]behaviour{
				"proxy": {hook: time.Hour, lives: []time.Duration{2500 * ms}, code: 1}}},
			want: []string{"0s proxy started", "2.5s proxy failed", "2.5s app started", "3s proxy started"},
		},
		"a Job completes, and its sidecar is stopped and does not count": {
			pod: Pod{Restart: Never, Init: []Container{nativeProxy}, Containers: appOnly},
			world: world{until: time.Hour, containers: map[string]behaviour{
				"app": {lives: []time.Duration{4 * sec}}, "proxy": {stops: never}}},
			want:   []string{"0s proxy started", "1s app started", "5s app completed", "6s proxy stopping", "36s proxy failed"},
			phases: []Phase{Pending, Running, Succeeded},
		},
		"a Job with a plain sidecar never ends": {
			pod:    Pod{Restart: Never, Containers: []Container{{Name: "proxy"}, {Name: "app"}}},
			world:  world{until: time.Hour, containers: map[string]behaviour{"app": {lives: []time.Duration{4 * sec}}}},
			want:   []string{"0s proxy started", "0s app started", "4s app completed"},
			phases: []Phase{Pending, Running},
		},
		"a Job that fails": {
			pod:    Pod{Restart: Never, Init: []Container{nativeProxy}, Containers: appOnly},
			world:  world{until: time.Hour, containers: map[string]behaviour{"app": {lives: []time.Duration{4 * sec}, code: 3}}},
			want:   []string{"0s proxy started", "1s app started", "5s app failed", "6s proxy stopping", "6s proxy completed"},
			phases: []Phase{Pending, Running, Failed},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.version == 0 {
				tt.version = 34
			}
			r := play(t, tt.pod, Minor(tt.version), tt.world)
			if diff := cmp.Diff(tt.want, r.lines()); diff != "" {
				t.Errorf("timeline (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.phases, r.phases()); tt.phases != nil && diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
		})
	}
}

// Crashes: at once, then 10 s, doubling to 5 minutes; forgotten after running for
// more than 10 minutes. 1.36 retries when the back-off ends, 1.34 every 10 s.
func TestBackOff(t *testing.T) {
	crash := func(lives ...time.Duration) world {
		return world{until: 2 * time.Hour, containers: map[string]behaviour{"app": {lives: lives, code: 1}}}
	}
	tests := map[string]struct {
		version int
		world   world
		want    []time.Duration // between the end of one and the start of the next
	}{
		"doubling to five minutes": {36, crash(sec, sec, sec, sec, sec, sec, sec, sec),
			[]time.Duration{0, 10 * sec, 20 * sec, 40 * sec, 80 * sec, 160 * sec, 300 * sec, 300 * sec}},
		"forgotten": {36, crash(sec, sec, 11*time.Minute, sec),
			[]time.Duration{0, 10 * sec, 0, 10 * sec}},
		"not forgotten yet": {36, crash(sec, sec, 9*time.Minute),
			[]time.Duration{0, 10 * sec, 20 * sec}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := play(t, Pod{Containers: appOnly}, Minor(tt.version), tt.world)
			starts, ends := r.when("app", startup.IsStarted), r.when("app", startup.HasFailed)
			for i, want := range tt.want {
				// The end is seen at the next relist.
				if got := starts[i+1] - ends[i]; got < want || got > want+sec {
					t.Errorf("restart %d comes %s after the end, want %s to %s", i+1, got, want, want+sec)
				}
			}
		})
	}
}

// In 1.36 a pass that meets a long back-off is repeated each minute.
func TestALongBackOff(t *testing.T) {
	r := play(t, Pod{Containers: appOnly}, Minor(36), world{until: 10 * time.Minute, containers: map[string]behaviour{
		"app": {lives: []time.Duration{sec, sec, sec, sec, sec, sec}, code: 1}}})
	held := r.acted("app", BackOff)
	last := r.when("app", startup.HasFailed)[5].Truncate(sec)
	if i := slices.Index(held, last+sec); i < 0 || !slices.Equal(held[i:], []time.Duration{last + sec, last + 61*sec, last + 121*sec}) {
		t.Errorf("back-off of 160 s since %s is met at %s, want it a second later and then each minute", last, held)
	}
}

func TestImagePullBackOff(t *testing.T) {
	r := play(t, Pod{Containers: appOnly}, Minor(34), world{until: 2 * time.Minute,
		containers: map[string]behaviour{"app": {imageAt: time.Hour}}})
	want := []time.Duration{0, 11 * sec, 31 * sec, 71 * sec} // each pass that fails puts off the next one
	if diff := cmp.Diff(want, r.acted("app", Pull)); diff != "" {
		t.Errorf("pulls (-want +got):\n%s", diff)
	}
}

func TestProbes(t *testing.T) {
	tests := map[string]struct {
		app   Container
		world behaviour
		want  map[Which][]time.Duration // when each ran, in the first 10 s
		stops []time.Duration
		ready bool // at the end
	}{
		"probes run at whole periods since the pod's first pass": {
			app:   Container{Liveness: Probe{Handler: TCPSocket, Period: 3 * sec}},
			want:  map[Which][]time.Duration{Liveness: {3 * sec, 6 * sec, 9 * sec}},
			ready: true,
		},
		"the delay counts from the container's start": {
			app:   Container{Liveness: Probe{Handler: GRPC, Period: 3 * sec, InitialDelay: 5 * sec}},
			want:  map[Which][]time.Duration{Liveness: {6 * sec, 9 * sec}},
			ready: true,
		},
		"readiness is probed as soon as the kubelet knows the container, and its periods begin then": {
			app:   Container{Readiness: Probe{Handler: HTTPGet, Period: 5 * sec}},
			want:  map[Which][]time.Duration{Readiness: {sec, 6 * sec}},
			ready: true,
		},
		"until the startup probe succeeds, no other one runs, and it then ends": {
			app:   Container{Startup: Probe{Handler: Exec, Period: 2 * sec}, Liveness: Probe{Handler: Exec, Period: 2 * sec}},
			world: behaviour{healthy: 3 * sec},
			want:  map[Which][]time.Duration{Startup: {2 * sec, 4 * sec}, Liveness: {6 * sec, 8 * sec, 10 * sec}},
			ready: true,
		},
		"a startup probe that fails too often has the container killed": {
			app:   Container{Startup: Probe{Handler: Exec, Period: 2 * sec, Failures: 3}},
			world: behaviour{healthy: never, stops: time.Hour},
			want:  map[Which][]time.Duration{Startup: {2 * sec, 4 * sec, 6 * sec}},
			stops: []time.Duration{6 * sec},
		},
		"liveness needs as many failures in a row as its threshold": {
			app:   Container{Liveness: Probe{Handler: Exec, Period: sec, Failures: 2}},
			world: behaviour{sickAt: 2500 * ms, stops: time.Hour},
			want:  map[Which][]time.Duration{Liveness: {sec, 2 * sec, 3 * sec, 4 * sec}},
			stops: []time.Duration{4 * sec},
			ready: true, // it runs, and has no readiness probe
		},
		"readiness only changes what is ready, and is probed again by the pass that follows": {
			app:   Container{Readiness: Probe{Handler: Exec, Period: sec, Failures: 2}},
			world: behaviour{sickAt: 7500 * ms},
			want:  map[Which][]time.Duration{Readiness: {sec, 2 * sec, 3 * sec, 4 * sec, 5 * sec, 6 * sec, 7 * sec, 8 * sec, 9 * sec, 9 * sec, 10 * sec}},
		},
		"readiness needs as many successes in a row as its threshold": {
			app:   Container{Readiness: Probe{Handler: Exec, Period: 4 * sec, Successes: 4}},
			want:  map[Which][]time.Duration{Readiness: {sec, 5 * sec, 9 * sec}},
			ready: false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.app.Name = "app"
			r := play(t, Pod{Containers: []Container{tt.app}}, Minor(34), world{until: 10 * sec,
				containers: map[string]behaviour{"app": tt.world}})
			sent := map[Which][]time.Duration{}
			for _, a := range r.actions {
				if a.Kind == RunProbe {
					sent[a.Which] = append(sent[a.Which], a.At)
				}
			}
			if diff := cmp.Diff(tt.want, sent); diff != "" {
				t.Errorf("probes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.stops, r.acted("app", Stop)); diff != "" {
				t.Errorf("kills (-want +got):\n%s", diff)
			}
			if got := r.state.Status().Ready; got != tt.ready {
				t.Errorf("ready is %v at the end, want %v", got, tt.ready)
			}
		})
	}
}

func TestAProbeThatDoesNotAnswerFails(t *testing.T) {
	s := New(Pod{Containers: []Container{{Name: "app", Liveness: Probe{Handler: Exec, Period: 5 * sec, Timeout: 2 * sec, Failures: 1}}}}, Minor(34))
	for _, e := range []Event{{Kind: Added}, {Kind: SandboxReady, OK: true}, {Kind: Pulled, Container: "app", OK: true},
		{Kind: Started, Container: "app", OK: true}} {
		s, _ = s.Step(e)
	}
	_, actions := s.Step(Event{Kind: Tick, At: 9 * sec})
	stops := 0
	for _, a := range actions {
		if a.Kind == Stop {
			stops++
			if a.At != 7*sec {
				t.Errorf("killed at %s, want 7s: sent at 5s, 2s to answer", a.At)
			}
		}
	}
	if stops != 1 {
		t.Errorf("%d kills, want 1: %v", stops, actions)
	}
}

func TestOnlyReadinessIsProbedWhileThePodStops(t *testing.T) {
	app := Container{Name: "app", Liveness: everySecond, Readiness: everySecond}
	r := play(t, Pod{Containers: []Container{app}}, Minor(34), world{until: time.Minute,
		script:     []Event{{At: 9500 * ms, Kind: Deleted}},
		containers: map[string]behaviour{"app": {stops: 8 * sec}}})
	last := map[Which]time.Duration{}
	for _, a := range r.actions {
		if a.Kind == RunProbe {
			last[a.Which] = a.At
		}
	}
	if diff := cmp.Diff(map[Which]time.Duration{Liveness: 9 * sec, Readiness: 17 * sec}, last); diff != "" {
		t.Errorf("last sent (-want +got):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	p := Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}},
		Containers: []Container{{Name: "app", Readiness: everySecond}}}
	r := play(t, p, Minor(34), world{until: 20 * sec, script: []Event{{At: 15 * sec, Kind: Deleted}},
		containers: map[string]behaviour{"proxy": {healthy: 1500 * ms}, "app": {healthy: 4500 * ms}}})
	type published struct {
		At time.Duration
		Status
	}
	var got []published
	for _, a := range r.actions {
		if a.Kind == Publish {
			got = append(got, published{a.At, a.Status})
		}
	}
	want := []published{
		{sec, Status{Phase: Pending, HasIP: true}},
		{2 * sec, Status{Phase: Pending, HasIP: true, Initialized: true}}, // the sidecar's probe
		{3 * sec, Status{Phase: Running, HasIP: true, Initialized: true}},
		{7 * sec, Status{Phase: Running, HasIP: true, Initialized: true, ContainersReady: true, Ready: true}},
		{15 * sec, Status{Phase: Succeeded, HasIP: true, Initialized: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

// A probe's own grace period is for its own kills, not for the pod's end.
func TestGracePeriodOfAProbe(t *testing.T) {
	app := Container{Name: "app", Liveness: Probe{Handler: Exec, Period: sec, Failures: 1, Grace: 3 * sec}}
	r := play(t, Pod{Containers: []Container{app}, Grace: 20 * sec}, Minor(34), world{until: time.Minute,
		script:     []Event{{At: 30 * sec, Kind: Deleted}},
		containers: map[string]behaviour{"app": {sickAt: 4500 * ms, stops: never}}})
	if diff := cmp.Diff([]time.Duration{8 * sec, 50 * sec}, r.acted("app", Kill)); diff != "" {
		t.Errorf("SIGKILL (-want +got):\n%s\n%s", diff, r.log)
	}
}

func TestVersions(t *testing.T) {
	for minor, want := range map[int]Version{
		27: {Minor: 28, Relist: sec},
		28: {Minor: 28, Relist: sec},
		33: {Minor: 33, Relist: sec, Sidecars: true},
		35: {Minor: 35, Relist: sec, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true},
		99: {Minor: 36, Relist: sec, Sidecars: true, KeepsStarted: true, ContainerRestart: true, ExactRetry: true, FreshAtOnce: true, StaysInitialized: true},
	} {
		if diff := cmp.Diff(want, Minor(minor)); diff != "" {
			t.Errorf("1.%d (-want +got):\n%s", minor, diff)
		}
	}
}
