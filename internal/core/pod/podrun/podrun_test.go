package podrun

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

const sec = time.Second

func TestLifecycle(t *testing.T) {
	tests := map[string]struct {
		spec string
		want kubelet.Pod
	}{
		"what is left out is left to the API's defaults": {
			spec: `{containers: [{name: app}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{{Name: "app"}}},
		},
		"policies, sidecars and a grace period": {
			spec: `{restartPolicy: OnFailure, terminationGracePeriodSeconds: 45,
  initContainers: [{name: migrate}, {name: proxy, restartPolicy: Always}], containers: [{name: app, restartPolicy: Never}]}`,
			want: kubelet.Pod{Restart: kubelet.OnFailure, Grace: 45 * sec,
				Init:       []kubelet.Container{{Name: "migrate"}, {Name: "proxy", Restart: kubelet.Always}},
				Containers: []kubelet.Container{{Name: "app", Restart: kubelet.Never}}},
		},
		"every kind of hook": {
			spec: `{containers: [
  {name: a, lifecycle: {postStart: {exec: {command: [a]}}, preStop: {httpGet: {port: 1}}}},
  {name: b, lifecycle: {postStart: {tcpSocket: {port: 1}}, preStop: {sleep: {seconds: 5}}}},
  {name: c, lifecycle: {preStop: {}}}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{
				{Name: "a", PostStart: kubelet.Exec, PreStop: kubelet.HTTPGet},
				{Name: "b", PostStart: kubelet.TCPSocket, PreStop: kubelet.Sleep, PreStopSleep: 5 * time.Second},
				{Name: "c"}}},
		},
		"preStop hooks that sleep, one beside ours": {
			spec: `{containers: [
  {name: a, lifecycle: {preStop: {exec: {command: [sh, -c, sleep 7; quit]}}}},
  {name: b, lifecycle: {preStop: {exec: {command: [/outrider/bin/outrider-agent, pre-stop, --name, b, --hook, '{"exec":{"command":["/bin/sleep","40"]}}']}}}}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{
				{Name: "a", PreStop: kubelet.Exec, PreStopSleep: 7 * sec}, {Name: "b", PreStop: kubelet.Gate, PreStopSleep: 40 * sec}}},
		},
		"every kind of probe, with its numbers": {
			spec: `{containers: [
  {name: a, startupProbe: {exec: {command: [a]}, initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 4, terminationGracePeriodSeconds: 6},
   livenessProbe: {httpGet: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}, successThreshold: 5}},
  {name: b, livenessProbe: {grpc: {port: 1}}}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{
				{Name: "a",
					Startup:   kubelet.Probe{Handler: kubelet.Exec, InitialDelay: sec, Period: 2 * sec, Timeout: 3 * sec, Failures: 4, Grace: 6 * sec},
					Liveness:  kubelet.Probe{Handler: kubelet.HTTPGet},
					Readiness: kubelet.Probe{Handler: kubelet.TCPSocket, Successes: 5}},
				{Name: "b", Liveness: kubelet.Probe{Handler: kubelet.GRPC}}}},
		},
		"probes that a gate answers": {
			spec: `{initContainers: [{name: logs, restartPolicy: Always, livenessProbe: {exec: {command: [/outrider/bin/outrider-agent, held, --name, logs, --probe, '{"tcpSocket":{"port":1}}']}}}],
  containers: [
  {name: a, startupProbe: {exec: {command: [/outrider/bin/outrider-agent, started, --name, a]}, failureThreshold: 2147483647}, livenessProbe: {httpGet: {port: 1}}},
  {name: b, startupProbe: {httpGet: {path: /app-health/b/startedz/key, port: 15020}}},
  {name: c, startupProbe: {httpGet: {path: /app-health/b/startedz/key, port: 15020}}, livenessProbe: {exec: {command: [/outrider/bin/outrider-agent, version]}}}]}`,
			want: kubelet.Pod{Init: []kubelet.Container{{Name: "logs", Restart: kubelet.Always, Liveness: kubelet.Probe{Handler: kubelet.Gate}}},
				Containers: []kubelet.Container{
					{Name: "a", Startup: kubelet.Probe{Handler: kubelet.Gate, Failures: 2147483647}, Liveness: kubelet.Probe{Handler: kubelet.HTTPGet}},
					{Name: "b", Startup: kubelet.Probe{Handler: kubelet.Gate}},
					{Name: "c", Startup: kubelet.Probe{Handler: kubelet.HTTPGet}, Liveness: kubelet.Probe{Handler: kubelet.Exec}}}},
		},
		"a grace period of 0 is not the default": {
			spec: `{terminationGracePeriodSeconds: 0, containers: [{name: app}]}`,
			want: kubelet.Pod{Grace: time.Nanosecond, Containers: []kubelet.Container{{Name: "app"}}},
		},
		"what the API would refuse is left out": {
			spec: `{restartPolicy: Sometimes, terminationGracePeriodSeconds: 9223372036854775807,
  containers: [{name: app, restartPolicy: "", livenessProbe: {periodSeconds: -5, failureThreshold: -1, terminationGracePeriodSeconds: -1}}]}`,
			want: kubelet.Pod{Grace: (1<<31 - 1) * sec, Containers: []kubelet.Container{{Name: "app"}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Lifecycle(pods.Parse(t, "spec: "+tt.spec))); diff != "" {
				t.Errorf("Lifecycle (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOf(t *testing.T) {
	edge := func(text string) startup.Edge { return pods.Plan(t, text).Edges[0] }
	type seen struct {
		Containers        []string
		Edges             []string
		Added             []string
		Written, Supposed []startup.Edge
		Sleeps            map[string]time.Duration
		Hooks             map[string]podspec.Hook
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
				Hooks: map[string]podspec.Hook{"istio-proxy": {Polls: "istio-proxy", Timeout: time.Minute}}},
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
				Hooks:  map[string]podspec.Hook{"istio-proxy": {Polls: "istio-proxy", Timeout: 6 * time.Second, GoesOn: true}}},
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
				Hooks:  map[string]podspec.Hook{"app": {Polls: "istio-proxy", Once: true}, "istio-proxy": {}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run, err := Of(pods.Parse(t, tt.pod), 34)
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
				t.Errorf("Of (-want +got):\n%s", diff)
			}
		})
	}
}

// The plan and the lifecycle of a pod have the same containers, and there is a warning for every requested edge
// without a mechanism.
func TestOfOfEveryPod(t *testing.T) {
	pods.Each(t, "../podspec/testdata/pods/*.yaml", func(t *testing.T, file string) {
		o := pods.File(t, file)
		run, err := Of(&o.Pod, 34)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, c := range run.Plan.Containers {
			want = append(want, c.Name+" "+string(c.Kind))
		}
		life := Lifecycle(run.Pod)
		for _, c := range life.Init {
			kind := startup.Init
			if c.Restart == kubelet.Always {
				kind = startup.Sidecar
			}
			got = append(got, c.Name+" "+string(kind))
		}
		for _, c := range life.Containers {
			got = append(got, c.Name+" ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("containers (-plan +lifecycle):\n%s", diff)
		}
		r, err := podspec.Read(&o.Pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range run.Plan.Edges {
			warned := slices.ContainsFunc(mechanism.Choose(r, 34), func(c mechanism.Choice) bool { return c.Edge == e && c.Warning != "" })
			if e.By == "" && !slices.Contains(run.Supposed, e) && !warned {
				t.Errorf("nothing keeps %q", e)
			}
		}
	})
}

// A container that injection has not added yet is in the same position in the pod as in the plan.
func TestStandIns(t *testing.T) {
	given := pods.Parse(t, "spec: {initContainers: [{name: a}, {name: b}], containers: [{name: app}]}")
	r, err := podspec.Read(given)
	r.Expected, r.Requested = []string{podspec.OurProxy, "linkerd-proxy", "istio-proxy"}, []startup.Edge{{From: podspec.OurProxy, To: "b"}}
	with, withErr := podspec.Read(withStandIns(given, r))
	var names [2][]string
	for i, containers := range [2][]startup.Container{r.ContainerPlan().Containers, with.Containers} {
		for _, c := range containers {
			names[i] = append(names[i], c.Name)
		}
	}
	if want := []string{"a", podspec.OurProxy, "b", "istio-proxy", "linkerd-proxy", "app"}; err != nil || withErr != nil || !slices.Equal(names[0], want) || !slices.Equal(names[1], want) {
		t.Errorf("%v, %v: %q, want %q", err, withErr, names, want)
	}
}

// Read, Choose, Write and the simulation do not panic for anything that looks like a pod.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"annotated", "health-loop", "istio-native", "job", "kuma", "tekton"} {
		o := pods.File(f, "../podspec/testdata/pods/"+name+".yaml")
		text, err := yaml.Marshal(o.Pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("metadata: {annotations: {outrider.dev/depends-on.app: outrider-proxy}}\nspec: {containers: [{name: app, command: [/app]}, {name: app}]}")
	f.Add("spec: {initContainers: [{name: proxy, restartPolicy: Always, startupProbe: {periodSeconds: -1}}], containers: [{name: proxy, lifecycle: {preStop: {}}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		objects, _, err := podfile.Parse("fuzz", []byte("kind: Pod\n"+text))
		if err != nil {
			return
		}
		for _, o := range objects {
			if len(o.Pod.Spec.InitContainers)+len(o.Pod.Spec.Containers) > 8 {
				continue
			}
			r, _ := podspec.Read(&o.Pod)
			mechanism.Choose(r, 34)
			for _, found := range r.Found {
				_, _ = podspec.Without(&o.Pod, found)
			}
			_, _ = podspec.Write(&o.Pod, r.Plan(), "")
			life := Lifecycle(&o.Pod)
			if len(life.Init)+len(life.Containers) != len(r.Containers) {
				t.Errorf("containers are lost: %+v", life)
			}
			state := kubelet.New(life, kubelet.Minor(34))
			state.Step(kubelet.Event{Kind: kubelet.Added})
			if run, err := Of(&o.Pod, 34); err == nil && run.Pod == nil {
				t.Error("no pod, and no error")
			}
		}
	})
}
