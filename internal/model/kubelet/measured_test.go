package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/startup"
)

var (
	everySecond = Probe{Handler: Exec, Period: sec}
	appOnly     = []Container{{Name: "app"}}
	nativeProxy = Container{Name: "proxy", Restart: Always}
)

// Each of these was seen on a real kubelet, v1.34.4 with containerd 1.6.20. Times are rounded.
func TestSeenOnARealKubelet(t *testing.T) {
	hold := Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}}
	tests := map[string]struct {
		pod   Pod
		world world
		plan  string
		want  []string
		broke []startup.Breach
	}{
		"a hold whose hook fails lets the app run, without any proxy": {
			pod: Pod{Containers: hold.Containers, Grace: 2 * sec},
			world: world{until: 6 * sec, containers: map[string]behaviour{
				"proxy": {healthy: never, hook: 3 * sec, hookFails: true, stops: never}}},
			plan:  "app after proxy is healthy",
			want:  []string{"0s proxy started", "3s proxy hook-failed", "3s proxy stopping", "5s proxy failed", "5s app started", "6s proxy started"},
			broke: []startup.Breach{startup.RanTooEarly},
		},
		"a hold whose hook takes 12 s works": {
			pod:   hold,
			world: world{until: 15 * sec, containers: map[string]behaviour{"proxy": {healthy: 12 * sec}}},
			plan:  "app after proxy is healthy",
			want:  []string{"0s proxy started", "12s app started"},
		},
		"a hold whose image is missing lets the app run at once": {
			pod:   hold,
			world: world{until: 9 * sec, containers: map[string]behaviour{"proxy": {imageAt: time.Hour}}},
			plan:  "app after proxy is healthy",
			want:  []string{"0s app started"},
			broke: []startup.Breach{startup.RanTooEarly},
		},
		"a native sidecar with a startup probe, healthy after 1 s": {
			pod:   Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}}, Containers: appOnly},
			world: world{until: 5 * sec, begin: 800 * ms, sandbox: 300 * ms, containers: map[string]behaviour{"proxy": {healthy: sec}}},
			plan:  "app after proxy is healthy",
			want:  []string{"1.1s proxy started", "3s app started"},
		},
		"a sidecar in back-off does not stop the app, but holds the pod's only app when that ends": {
			pod: Pod{Init: []Container{nativeProxy}, Containers: appOnly},
			world: world{until: time.Minute, containers: map[string]behaviour{
				"proxy": {lives: []time.Duration{5 * sec, sec}, code: 1},
				"app":   {lives: []time.Duration{10 * sec}, code: 1}}},
			plan: "app after proxy is started",
			want: []string{"0s proxy started", "1s app started", "5s proxy failed", "6s proxy started", "7s proxy failed",
				"11s app failed", "22s proxy started", "23s app started"},
		},
		"with two apps, the one that ends is restarted at once without the sidecar": {
			pod: Pod{Init: []Container{nativeProxy}, Containers: []Container{{Name: "app"}, {Name: "web"}}},
			world: world{until: 15 * sec, containers: map[string]behaviour{
				"proxy": {lives: []time.Duration{5 * sec, sec, sec}, code: 1},
				"app":   {lives: []time.Duration{10 * sec}, code: 1}}},
			plan: "app after proxy is started",
			want: []string{"0s proxy started", "1s app started", "1s web started", "5s proxy failed", "6s proxy started", "7s proxy failed",
				"11s app failed", "12s app started"},
			broke: []startup.Breach{startup.RanTooEarly},
		},
		"deletion: the sidecar's preStop at once, its SIGTERM after the app has ended": {
			pod: Pod{Init: []Container{{Name: "proxy", Restart: Always, PreStop: Exec}}, Containers: appOnly},
			world: world{until: time.Minute, script: []Event{{At: 10 * sec, Kind: Deleted}},
				containers: map[string]behaviour{"app": {stops: 3 * sec}}},
			plan: "app after proxy is started",
			want: []string{"0s proxy started", "1s app started", "10s deleted", "10s app stopping", "13s app completed",
				"13s proxy stopping", "13s proxy completed"},
		},
		"a native sidecar whose postStart never succeeds is a true gate": {
			pod: Pod{Init: []Container{{Name: "proxy", Restart: Always, PostStart: Exec}}, Containers: appOnly},
			world: world{until: 30 * sec, containers: map[string]behaviour{
				"proxy": {healthy: never, hook: 2 * sec, hookFails: true}}},
			plan: "app after proxy is healthy",
			want: []string{"0s proxy started", "2s proxy hook-failed", "2s proxy stopping", "2s proxy completed",
				"3s proxy started", "5s proxy hook-failed", "5s proxy stopping", "5s proxy completed",
				"17s proxy started", "19s proxy hook-failed", "19s proxy stopping", "19s proxy completed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan, err := startup.Parse(tt.plan)
			if err != nil {
				t.Fatal(err)
			}
			r := play(t, tt.pod, Minor(34), tt.world)
			if diff := cmp.Diff(tt.want, r.lines()); diff != "" {
				t.Errorf("timeline (-want +got):\n%s", diff)
			}
			var broke []startup.Breach
			for _, v := range startup.Check(plan, r.log) {
				broke = append(broke, v.How)
			}
			if diff := cmp.Diff(tt.broke, broke); diff != "" {
				t.Errorf("Check (-want +got):\n%s\n%s", diff, r.log)
			}
		})
	}
}

// From when the proxy is ready, 0.1 s after its start, to the start of the app:
// medians of 8 on real kubelets, v1.34.4 and v1.36.3. The model has no latency but
// that of its rules, and is to be within 0.15 s of the figure.
func TestWhatEachWayOfOrderingCosts(t *testing.T) {
	tests := map[string]struct {
		pod      Pod
		measured map[int]time.Duration
	}{
		"native sidecar, startup probe every second": {
			pod:      Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}}, Containers: appOnly},
			measured: map[int]time.Duration{34: 1890 * ms, 36: 890 * ms},
		},
		"native sidecar, blocking postStart": {
			pod:      Pod{Init: []Container{{Name: "proxy", Restart: Always, PostStart: Exec}}, Containers: appOnly},
			measured: map[int]time.Duration{34: 920 * ms, 36: 100 * ms},
		},
		"hold": {
			pod:      Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}},
			measured: map[int]time.Duration{34: 110 * ms, 36: 80 * ms},
		},
	}
	for name, tt := range tests {
		for minor, measured := range tt.measured {
			t.Run(name, func(t *testing.T) {
				// The pass begins just after a relist, which is what its pod was made by.
				r := play(t, tt.pod, Minor(minor), world{begin: 10 * ms, until: 10 * sec,
					containers: map[string]behaviour{"proxy": {healthy: 100 * ms}}})
				got := r.when("app", startup.IsStarted)[0] - r.when("proxy", startup.IsStarted)[0] - 100*ms
				if (got - measured).Abs() > 150*ms {
					t.Errorf("v1.%d: the app starts %s after the proxy is ready; measured: %s\n%s", minor, got, measured, r.log)
				}
			})
		}
	}
}

// The pod's IP is published by the pass after the one that made the sandbox, and
// a hook that blocks keeps that pass from coming.
func TestAHookHidesThePodIP(t *testing.T) {
	tests := map[string]struct {
		pod  Pod
		want time.Duration
	}{
		"no hook":                 {Pod{Containers: []Container{{Name: "proxy"}, {Name: "app"}}}, sec},
		"hold":                    {Pod{Containers: []Container{{Name: "proxy", PostStart: Exec}, {Name: "app"}}}, 13 * sec},
		"native, blocking hook":   {Pod{Init: []Container{{Name: "proxy", Restart: Always, PostStart: Exec}}, Containers: appOnly}, 13 * sec},
		"native, startup probe":   {Pod{Init: []Container{{Name: "proxy", Restart: Always, Startup: everySecond}}, Containers: appOnly}, sec},
		"the proxy has no image":  {Pod{Containers: []Container{{Name: "none"}, {Name: "app"}}}, sec},
		"the app has a slow hook": {Pod{Containers: []Container{{Name: "app"}, {Name: "proxy", PostStart: HTTPGet}}}, 13 * sec},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := play(t, tt.pod, Minor(34), world{until: 20 * sec,
				containers: map[string]behaviour{"proxy": {healthy: 12 * sec}, "none": {imageAt: time.Hour}}})
			if diff := cmp.Diff([]time.Duration{tt.want}, r.when("", startup.HasAddress)); diff != "" {
				t.Errorf("address (-want +got):\n%s\n%s", diff, r.log)
			}
		})
	}
}
