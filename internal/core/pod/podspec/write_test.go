package podspec

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

const shop = `
metadata: {name: shop}
spec:
  initContainers: [{name: migrate, image: m}]
  containers:
  - {name: app, image: a, command: [/app], args: [--fast], lifecycle: {preStop: {sleep: {seconds: 1}}}}
  - {name: web, image: w, command: [/web]}
  - {name: cache, image: redis, command: [redis-server], readinessProbe: {tcpSocket: {port: 6379}}}
  - {name: istio-proxy, image: p, args: [proxy], readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}}
`

// Write returns the golden pod for each mechanism. A second Write changes nothing, all edges are read back, and
// Ungated restores a pod that has only gates.
func TestWrite(t *testing.T) {
	pods.Each(t, "testdata/write/*.txtar", func(t *testing.T, file string) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plan, before := pods.Plan(t, string(a.Files[0].Data)), pods.Parse(t, strings.TrimPrefix(string(a.Files[1].Data), "kind: Pod\n"))
		kept := before.DeepCopy()
		out, err := Write(before, plan, "")
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if a.Files[2].Data = text; os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(txtar.Format(a))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(kept, before); diff != "" {
			t.Errorf("Write changed its argument:\n%s", diff)
		}
		again, err := Write(out, plan, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(out, again); diff != "" {
			t.Errorf("writing twice is not writing once:\n%s", diff)
		}
		plan.Containers = containersOf(before)
		r, err := Read(out)
		if err != nil {
			t.Fatal(err)
		}
		pods.Has(t, r.Plan(), plan)
		for _, e := range plan.Edges {
			if e.By != startup.Gate {
				return
			}
		}
		back := Ungated(out)
		back.Spec.InitContainers = slices.DeleteFunc(back.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == contract.InitContainer })
		if diff := cmp.Diff(plainCommands(before).Spec, back.Spec, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("without its gates (-want +got):\n%s", diff)
		}
	})
}

// plainCommands returns p in the form that [Ungated] returns: command and arguments are one list, and ports
// are numbers.
func plainCommands(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	for _, c := range podContainers(out) {
		if len(c.Command) > 0 {
			c.Command, c.Args = c.argv(), nil
		}
		n := numbered(c.Container)
		c.StartupProbe, c.LivenessProbe, c.Lifecycle = n.StartupProbe, n.LivenessProbe, n.Lifecycle
	}
	return out
}

// Ungated also removes gates that earlier versions of Outrider wrote. They stored the original startup probe and
// the delay only in the gate's command line, and replaced the liveness probe by one that runs the agent.
func TestUngatedReadsWhatEarlierVersionsWrote(t *testing.T) {
	const agent = "command: [/outrider/bin/outrider-agent], args: [gate, --name, app, --after, istio-proxy is healthy, "
	tests := map[string]struct{ written, want string }{
		"a startup probe": {
			agent + `--startup-probe, '{"httpGet":{"path":"/s","port":8080},"terminationGracePeriodSeconds":3}', --, /app], readinessProbe: {httpGet: {path: /s, port: 8080}}`,
			`command: [/app], startupProbe: {httpGet: {path: /s, port: 8080}, terminationGracePeriodSeconds: 3}, readinessProbe: {httpGet: {path: /s, port: 8080}}`},
		"a startup and a readiness probe": {
			agent + `--startup-probe, '{"tcpSocket":{"port":1}}', --, /app], readinessProbe: {tcpSocket: {port: 2}}`,
			`command: [/app], startupProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 2}}`},
		"a liveness probe with a delay": {
			agent + `--startup-probe, '{"exec":{"command":["/outrider/bin/outrider-agent","version"]},"initialDelaySeconds":30}', --, /app],` +
				`livenessProbe: {initialDelaySeconds: 30, exec: {command: [/outrider/bin/outrider-agent, held, --name, app, --probe, '{"tcpSocket":{"port":5},"initialDelaySeconds":30}']}}`,
			`command: [/app], livenessProbe: {tcpSocket: {port: 5}, initialDelaySeconds: 30}`},
		"readiness like startup, as it is written now": {
			agent + `--startup-probe, '{"tcpSocket":{"port":1}}', --, /app], readinessProbe: {tcpSocket: {port: 1}}, startupProbe: {exec: {command: [/outrider/bin/outrider-agent, started, --name, app]}}`,
			`command: [/app], startupProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := func(container string) *corev1.Pod {
				return pods.Parse(t, "spec: {containers: [{name: app, image: a, "+container+"}, {name: istio-proxy, image: p}]}")
			}
			if diff := cmp.Diff(in(tt.want).Spec, Ungated(in(tt.written)).Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	const (
		gated = "app after outrider-proxy is healthy, by gate"
		mount = "spec: {volumes: [{name: data, emptyDir: {}}], containers: [{name: outrider-proxy, image: p}, {name: app, image: a, command: [/app], volumeMounts: [{name: data, mountPath: PATH}]}]}"
		under = "app mounts its volume data at PATH, and all of /outrider is the gates'"
	)
	volume := func(text string) string {
		return "spec: {volumes: [" + text + "], containers: [{name: outrider-proxy, image: p}, {name: app, image: a, command: [/app]}]}"
	}
	at := func(text, path string) string { return strings.ReplaceAll(text, "PATH", path) }
	tests := map[string]struct{ pod, plan, want string }{
		"a cycle":                      {shop, "app after web is started, by gate\nweb after app is started, by gate", "start-up cycle: app -> web -> app"},
		"no mechanism":                 {shop, "app after web is started", `"app after web is started": no mechanism is chosen`},
		"an unknown container":         {shop, "app after db is started, by gate", `"app after db is started, by gate": the pod has no container db`},
		"an edge twice":                {shop, "app after cache is started, by gate\napp after cache is healthy, by gate", `"app after cache is healthy, by gate": app waits for cache twice`},
		"a gate without a command":     {shop, "istio-proxy after cache is healthy, by gate", `"istio-proxy after cache is healthy, by gate": the command of istio-proxy is not in the pod, so there is nothing to wrap`},
		"an init container as sidecar": {shop, "app after migrate is started, by native", `"app after migrate is started, by native": migrate is an init container that must complete`},
		"a hold of an init container":  {shop, "migrate after cache is healthy, by hold", `"migrate after cache is healthy, by hold": hold works between plain containers only`},
		"a hook without a probe":       {shop, "web after app is healthy, by native", `"web after app is healthy, by native": app has no probe that reports when it is healthy`},
		"a work-around not in the pod": {shop, "app after cache is healthy, by sleep", `"app after cache is healthy, by sleep": cannot be written into this pod: read back as nothing`},

		// The pod uses a name or a directory of the gates for something else. That must be refused: otherwise the
		// agent would be run from a volume of the user, or the pods of a node would share their states.
		"a directory of the gate":  {at(mount, "/outrider/bin"), gated, at(under, "/outrider/bin")},
		"the same, not normalised": {at(mount, "//outrider/own/"), gated, at(under, "//outrider/own/")},
		"its parent":               {at(mount, "/outrider"), gated, at(under, "/outrider")},
		"by the name of ours":      {strings.NewReplacer("data", "outrider-bin", "{}", "{medium: Memory}", "PATH", "/outrider/bin/outrider-agent").Replace(mount), gated, strings.NewReplacer("data", "outrider-bin", "PATH", "/outrider/bin/outrider-agent").Replace(under)},
		"a longer name":            {at(mount, "/outriders"), gated, ""},
		"the states, on the node":  {volume("{name: outrider-state, hostPath: {path: /data}}"), gated, "the pod has its own volume outrider-state, and by that name the gates have theirs"},
		"the program, on the disk": {volume("{name: outrider-bin, emptyDir: {}}"), gated, "the pod has its own volume outrider-bin, and by that name the gates have theirs"},
		"the volumes of the gates": {volume("{name: outrider-bin, emptyDir: {medium: Memory}}"), gated, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Write(pods.Parse(t, tt.pod), pods.Plan(t, tt.plan), "")
			if tt.want == "" && err == nil {
				return
			}
			if diff := cmp.Diff(tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A gate that only reports the end of its command does not take over probes and hooks from the kubelet. It can be
// removed completely.
func TestWriteReports(t *testing.T) {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/ok"}}}}
	app := corev1.Container{
		Name: "app", Command: []string{"/app", "-v"}, LivenessProbe: probe, StartupProbe: probe,
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/hook"}}}},
	}
	given := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: OurProxy}, app}}}
	pod, err := Write(given, startup.Plan{}, "", "app")
	if err != nil {
		t.Fatal(err)
	}
	got := pod.Spec.Containers[1]
	if want := []string{"gate", "--name", "app", "--", "/app", "-v"}; !slices.Equal(got.Args, want) || !Gated(&got) {
		t.Errorf("%q %q; want %q", got.Command, got.Args, want)
	}
	if !reflect.DeepEqual(got.LivenessProbe, probe) || !reflect.DeepEqual(got.StartupProbe, probe) || !reflect.DeepEqual(got.Lifecycle, app.Lifecycle) {
		t.Errorf("probes and hooks: %v, %v, %v; want them as they were", got.LivenessProbe, got.StartupProbe, got.Lifecycle)
	}
	reading, err := ReadOrder(pod)
	if err != nil || len(reading.Requested) > 0 {
		t.Errorf("read back: %v, %v; want no edges", reading.Requested, err)
	}
	if back := Ungated(pod).Spec.Containers[1]; !reflect.DeepEqual(back, app) {
		t.Errorf("without the gate: %+v; want %+v", back, app)
	}
	if _, err := Write(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}, startup.Plan{}, "", "app"); err == nil {
		t.Error("no command, and no error")
	}
}
