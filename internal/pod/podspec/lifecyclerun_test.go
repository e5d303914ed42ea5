package podspec

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

func TestAsItRuns(t *testing.T) {
	edge := func(text string) startup.Edge {
		p, err := startup.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return p.Edges[0]
	}
	type seen struct {
		Containers        []string
		Edges             []string
		Added             []string
		Written, Supposed []startup.Edge
		Sleeps            map[string]time.Duration
		Hooks             map[string]Hook
	}
	tests := map[string]struct {
		pod  string
		want seen
	}{
		"no edges and no proxy": {
			pod:  `spec: {containers: [{name: app}]}`,
			want: seen{Containers: []string{"app"}},
		},
		"the app is supposed to wait for its proxy": {
			pod: `spec: {initContainers: [{name: istio-init}], containers: [{name: app}, {name: istio-proxy}]}`,
			want: seen{Containers: []string{"istio-init", "app", "istio-proxy"},
				Edges: []string{"app after istio-init is completed, by init", "istio-proxy after istio-init is completed, by init",
					"app after istio-proxy is healthy"},
				Supposed: []startup.Edge{edge("app after istio-proxy is healthy")}},
		},
		"a hold is in the pod already, and has a time-out": {
			pod: `spec: {containers: [{name: istio-proxy, lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}}, {name: app}]}`,
			want: seen{Containers: []string{"istio-proxy", "app"},
				Edges: []string{"app after istio-proxy is healthy, within 1m0s or continue, by hold"},
				Hooks: map[string]Hook{"istio-proxy": {Polls: "istio-proxy", Timeout: time.Minute}}},
		},
		"a gate is written, for a proxy that injection adds": {
			pod: `metadata: {annotations: {outrider.dev/depends-on.app: outrider-proxy}}
spec: {containers: [{name: app, command: [/app]}]}`,
			want: seen{Containers: []string{"outrider-init", "outrider-proxy", "app"},
				Edges: []string{"app after outrider-proxy is healthy, by gate", "outrider-proxy after outrider-init is completed, by init",
					"app after outrider-init is completed, by init"},
				Added:   []string{"outrider-proxy"},
				Written: []startup.Edge{edge("app after outrider-proxy is healthy, by gate")}},
		},
		"a loop and a hook that give up": {
			pod: `spec: {containers: [
  {name: istio-proxy, lifecycle: {postStart: {exec: {command: [sh, -c, "for i in 1 2 3; do curl -f localhost:15021 && break; sleep 2; done"]}}}},
  {name: app, command: [sh, -c, "curl --retry 2 --retry-connrefused -f localhost:15021; exec /app"]}]}`,
			want: seen{Containers: []string{"istio-proxy", "app"},
				Edges:  []string{"app after istio-proxy is started, by hold"},
				Sleeps: map[string]time.Duration{"app": 3 * time.Second},
				Hooks:  map[string]Hook{"istio-proxy": {Polls: "istio-proxy", Timeout: 6 * time.Second, GoesOn: true}}},
		},
		"what nothing can keep has no mechanism": {
			pod: `metadata: {annotations: {outrider.dev/depends-on.app: cache, outrider.dev/start: "off"}}
spec: {containers: [{name: app}, {name: cache, readinessProbe: {tcpSocket: {port: 6379}}}]}`,
			want: seen{Containers: []string{"app", "cache"}, Edges: []string{"app after cache is healthy"}},
		},
		"sleeps, and hooks that probe once or not at all": {
			pod: `spec: {containers: [
  {name: app, command: [sh, -c, "sleep 3; sleep 2; exec /app"], lifecycle: {postStart: {httpGet: {port: 15021, path: /healthz/ready}}}},
  {name: istio-proxy, lifecycle: {postStart: {exec: {command: [echo, hello]}}}}]}`,
			want: seen{Containers: []string{"app", "istio-proxy"},
				Edges:  []string{"app after istio-proxy is healthy, by post-start-probe"},
				Sleeps: map[string]time.Duration{"app": 5 * time.Second},
				Hooks:  map[string]Hook{"app": {Polls: "istio-proxy", Once: true}, "istio-proxy": {}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, _, err := Parse("pod.yaml", []byte("kind: Pod\n"+tt.pod))
			if err != nil {
				t.Fatal(err)
			}
			run, err := AsItRuns(&objects[0].Pod, 34)
			if err != nil {
				t.Fatal(err)
			}
			got := seen{Added: run.Added, Written: run.Written, Supposed: run.Supposed}
			for _, c := range run.Plan.Containers {
				got.Containers = append(got.Containers, c.Name)
			}
			for _, e := range run.Plan.Edges {
				got.Edges = append(got.Edges, e.String())
			}
			if len(run.Sleeps) > 0 {
				got.Sleeps = run.Sleeps
			}
			if len(run.Hooks) > 0 {
				got.Hooks = run.Hooks
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("AsItRuns (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the pod, its plan and its lifecycle speak of the same containers, and
// an edge without a mechanism is one that nothing keeps.
func TestAsItRunsOfEveryPod(t *testing.T) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _, err := Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			run, err := AsItRuns(&o.Pod, 34)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			var want, got []string
			for _, c := range run.Plan.Containers {
				want = append(want, c.Name)
			}
			life := Lifecycle(run.Pod)
			for _, list := range [][]kubelet.Container{life.Init, life.Containers} {
				for _, c := range list {
					got = append(got, c.Name)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: containers (-plan +lifecycle):\n%s", file, diff)
			}
			r, err := Read(&o.Pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range run.Plan.Edges {
				warned := slices.ContainsFunc(Choose(r, 34), func(c Choice) bool { return c.Edge == e && c.Warning != "" })
				if e.By == "" && !slices.Contains(run.Supposed, e) && !warned {
					t.Errorf("%s: nothing keeps %q", file, e)
				}
			}
		}
	}
}

func FuzzAsItRuns(f *testing.F) {
	f.Add("spec: {containers: [{name: app, command: [sh, -c, sleep 3; exec /app]}, {name: istio-proxy}]}")
	f.Add("metadata: {annotations: {outrider.dev/depends-on.app: outrider-proxy}}\nspec: {containers: [{name: app, command: [/app]}, {name: app}]}")
	f.Add("spec: {initContainers: [{name: proxy, restartPolicy: Always, startupProbe: {periodSeconds: -1}}], containers: [{name: proxy, lifecycle: {preStop: {}}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		objects, _, err := Parse("pod.yaml", []byte("kind: Pod\n"+text))
		if err != nil {
			return
		}
		for _, o := range objects {
			life := Lifecycle(&o.Pod)
			if len(life.Init)+len(life.Containers) != len(carriers(&o.Pod)) {
				t.Errorf("containers are lost: %+v", life)
			}
			state := kubelet.New(life, kubelet.Minor(34))
			state.Step(kubelet.Event{Kind: kubelet.Added})
			if run, err := AsItRuns(&o.Pod, 34); err == nil && run.Pod == nil {
				t.Error("no pod, and no error")
			}
		}
	})
}
