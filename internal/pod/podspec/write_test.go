package podspec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/startup"
)

func edges(t testing.TB, text string) startup.Plan {
	t.Helper()
	p, err := startup.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

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

// What Write writes for each mechanism.
func TestWrite(t *testing.T) {
	tests := map[string]struct {
		plan string
		want []string // in the pod's YAML
		not  string
	}{
		"gate": {
			plan: "app after cache is healthy, within 20s or continue, by gate\napp after istio-proxy is healthy, by gate",
			want: []string{
				"- --after\n    - cache is healthy, within 20s or continue\n",
				"- istio-proxy=http://127.0.0.1:15021/healthz/ready\n",
				"- --\n    - /app\n    - --fast\n",
				"- gate\n    - --name\n    - cache\n    - --probe\n    - '{\"tcpSocket\":{\"port\":6379}}'\n    - --\n    - redis-server\n",
				"medium: Memory", "subPath: app", "- outrider-agent\n    - copy\n",
			},
		},
		"native": {
			plan: "* after istio-proxy is healthy, by native",
			want: []string{"restartPolicy: Always", "postStart:\n        exec:\n          command:\n          - pilot-agent\n          - wait\n"},
			not:  "outrider-init",
		},
		"native, of the user's own": {
			plan: "app after cache is healthy, by native",
			want: []string{"- /outrider/bin/outrider-agent\n          - wait\n          - --probe\n", "restartPolicy: Always"},
		},
		"hold": {
			plan: "app after istio-proxy is healthy, by hold",
			want: []string{"containers:\n  - args:\n    - proxy\n    image: p\n    lifecycle:\n      postStart:\n        exec:\n          command:\n          - pilot-agent\n          - wait\n"},
			not:  "restartPolicy: Always",
		},
		"mixed": {
			plan: "* after istio-proxy is healthy, by native\napp after cache is started, by gate, on restart restart\nweb after app is started, by gate",
			want: []string{"restartPolicy: Always", "- cache is started, on restart restart\n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := pod(t, shop)
			kept := before.DeepCopy()
			out, err := Write(before, edges(t, tt.plan), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(kept, before); diff != "" {
				t.Errorf("Write changed its argument:\n%s", diff)
			}
			text, _ := yaml.Marshal(out)
			for _, want := range tt.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("want %q in\n%s", want, text)
				}
			}
			if tt.not != "" && strings.Contains(string(text), tt.not) {
				t.Errorf("%q in\n%s", tt.not, text)
			}
			again, err := Write(out, edges(t, tt.plan), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(out, again); diff != "" {
				t.Errorf("writing twice is not writing once:\n%s", diff)
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	tests := map[string]struct{ plan, want string }{
		"a cycle":                      {"app after web is started, by gate\nweb after app is started, by gate", "start-up cycle: app -> web -> app"},
		"no mechanism":                 {"app after web is started", `"app after web is started": no mechanism is chosen`},
		"a stranger":                   {"app after db is started, by gate", `"app after db is started, by gate": the pod has no container db`},
		"a gate without a command":     {"istio-proxy after cache is healthy, by gate", `"istio-proxy after cache is healthy, by gate": the command of istio-proxy is not in the pod, so there is nothing to wrap`},
		"an init container as sidecar": {"app after migrate is started, by native", `"app after migrate is started, by native": migrate is an init container that must complete`},
		"a hold of an init container":  {"migrate after cache is healthy, by hold", `"migrate after cache is healthy, by hold": hold works between plain containers only`},
		"a hook without a probe":       {"web after app is healthy, by native", `"web after app is healthy, by native": app has no probe that says when it is healthy`},
		"what is not there":            {"app after cache is healthy, by sleep", `"app after cache is healthy, by sleep": cannot be written into this pod: read back as nothing`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Write(pod(t, shop), edges(t, tt.plan), Options{})
			if diff := cmp.Diff(tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every choice that is made for a pod can be written into it, if the pod has all
// the containers.
func TestWhatIsChosenCanBeWritten(t *testing.T) {
	p := pod(t, shop)
	for text, by := range map[string]startup.Mechanism{
		"app after istio-proxy is healthy":          startup.Gate,
		"app after cache is healthy":                startup.Gate,
		"migrate after istio-proxy is healthy":      startup.Native,
		"istio-proxy after migrate is completed":    startup.InitDone,
		"app after istio-proxy is healthy, by hold": startup.Hold,
	} {
		p.Annotations = map[string]string{EdgesAnnotation: FormatEdges(edges(t, text).Edges)}
		r, err := Read(p)
		if err != nil {
			t.Fatal(err)
		}
		var plan startup.Plan
		for _, c := range Choose(r, 34) {
			plan.Edges = append(plan.Edges, c.Edge)
		}
		if i := slices.IndexFunc(plan.Edges, func(e startup.Edge) bool { return strings.HasPrefix(text, e.To+" after "+e.From+" ") }); plan.Edges[i].By != by {
			t.Errorf("%s: by %q, want %q", text, plan.Edges[i].By, by)
		}
		if _, err := Write(p, plan, Options{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// podOf is a pod with the containers of a plan: all have a command, and a probe
// if the plan says that they have one.
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

// What is written is read back as what was asked for; no container is lost.
func FuzzRoundTrip(f *testing.F) {
	f.Add("app after proxy is healthy, by gate\nproxy after db is started, by gate")
	f.Add("container istio-proxy is plain, healthy by readiness-probe\ncontainer app is plain\n* after istio-proxy is healthy, by native")
	f.Add("container linkerd-proxy is plain\ncontainer app is plain\ncontainer b is plain, healthy by startup-probe\nb after linkerd-proxy is healthy, by hold\napp after b is healthy, by gate, optional, within 3s or continue")
	f.Add("container a is init\ncontainer b is sidecar, healthy by startup-probe\ncontainer c is plain\nc after a is completed, by init\nc after b is healthy, by native")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := startup.Parse(text)
		if err != nil || len(p.Containers) > 8 || len(p.Edges) > 16 {
			return
		}
		if p.Validate(34).Err() != nil {
			return
		}
		in := podOf(p)
		out, err := Write(in, p, Options{})
		if err != nil {
			var refused *WriteError
			if !errors.As(err, &refused) {
				t.Fatalf("%v\n%s", err, p)
			}
			return
		}
		p.Containers = containersOf(in)
		sameEdges(t, p, out)
	})
}

// Nothing that looks like a pod makes Read, Choose or Write panic.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"asked", "health-loop", "istio-native", "job", "kuma", "tekton"} {
		o := object(f, "testdata/pods/"+name+".yaml")
		text, err := yaml.Marshal(o.Pod)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("kind: Pod\n" + string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects, _, err := Parse("fuzz", []byte(text))
		if err != nil {
			return
		}
		for _, o := range objects {
			if len(o.Pod.Spec.Containers)+len(o.Pod.Spec.InitContainers) > 8 {
				continue
			}
			r, _ := Read(&o.Pod)
			Choose(r, 34)
			for _, found := range r.Found {
				_, _ = Without(&o.Pod, found)
			}
			_, _ = Write(&o.Pod, r.Plan(), Options{})
		}
	})
}

func FuzzStatements(f *testing.F) {
	f.Add("set -e; until curl -f http://localhost:15021/healthz/ready >/dev/null 2>&1; do sleep 1; done && exec java -jar '/a b.jar' # run")
	f.Add("while ! nc -z 127.0.0.1 15021\ndo\nsleep 1\ndone\n/app \"$@\"")
	f.Fuzz(func(t *testing.T, text string) {
		at := 0
		for _, s := range statements(text) {
			if s.start < at || s.end < s.start || s.end > len(text) || len(s.words) == 0 {
				t.Fatalf("statement %+v after %d in %q", s, at, text)
			}
			at = s.end
			s.polledPort()
			s.sleeps()
			s.neutral()
			s.loops()
		}
	})
}

// Random pods, with random edges by random mechanisms: what is not refused is
// read back as asked for. Most of what the strategy chooses is not refused.
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
		p := edges(t, b.String())
		in := podOf(p)
		p.Containers = containersOf(in)
		if out, err := Write(in, p, Options{}); err == nil {
			written++
			sameEdges(t, p, out)
		}
		in.Annotations = map[string]string{}
		for i := range p.Edges {
			p.Edges[i].By = ""
		}
		in.Annotations[EdgesAnnotation] = FormatEdges(p.Edges)
		r, err := Read(in)
		if err != nil || r.Plan().Validate(34).Err() != nil {
			continue
		}
		p.Edges = nil
		for _, c := range Choose(r, 34) {
			if c.Edge.By != "" {
				p.Edges = append(p.Edges, c.Edge)
			}
		}
		if out, err := Write(in, p, Options{}); err != nil {
			t.Errorf("chosen, and not written: %v\n%s", err, p)
		} else {
			chosen++
			sameEdges(t, p, out)
		}
	}
	if written < 300 || chosen < 300 {
		t.Errorf("%d plans written, %d chosen and written: the test shows little", written, chosen)
	}
}

// sameEdges: what is read from the pod has every edge of the plan, and every container.
func sameEdges(t *testing.T, p startup.Plan, out *corev1.Pod) {
	t.Helper()
	r, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Plan()
	for _, e := range p.Expand().Edges {
		i := slices.IndexFunc(got.Edges, func(o startup.Edge) bool { return o.From == e.From && o.To == e.To })
		if i < 0 || e.By != startup.InitDone && got.Edges[i] != e {
			t.Fatalf("asked for %s\nread\n%s", e, got)
		}
	}
	for _, c := range p.Containers {
		if _, i := got.Find(c.Name); i < 0 {
			t.Fatalf("container %s is lost", c.Name)
		}
	}
}
