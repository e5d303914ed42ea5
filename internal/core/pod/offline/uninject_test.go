package offline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/startup"
	"outrider.dev/test/corpus"
	"outrider.dev/test/tier"
)

// Uninject undoes the injection of each pod of the corpus. All data are restored exactly, even where Kubernetes
// would treat a difference as equal. Documents that were not injected keep their exact bytes, and so do most of
// the injected ones. In the others, fields of a probe have another order, or a long text is folded differently.
func TestUninjectUndoesInject(t *testing.T) {
	files, err := corpus.Sane()
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		on  startup.Kubernetes
		set []string
	}{
		{28, nil},
		{34, []string{"pilot.env.ENABLE_NATIVE_SIDECARS=true", "global.proxy.holdApplicationUntilProxyStarts=true", "global.imagePullSecrets={s}"}},
	} {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			o := Options{Namespace: "x", Inject: inject.Options{Manual: true, Kubernetes: way.on}}
			if _, err := (Settings{Set: way.set}).Read(&o.Inject); err != nil {
				t.Fatal(err)
			}
			changed, same, taken, all := 0, 0, 0, 0
			for _, f := range files {
				var chosen []byte
				for _, document := range documents(f.Data) {
					all++
					if tier.Sample(document, 5) {
						taken++
						chosen = append(chosen, document...)
					}
				}
				c, s := roundTrip(t, File{f.Name, chosen}, o)
				changed, same = changed+c, same+s
			}
			t.Logf("%d of %d documents, all of them with OUTRIDER_NIGHTLY=1", taken, all)
			t.Logf("%d documents injected; once that is undone all have the same data, and %d the same bytes as before", changed, same)
			if changed < tier.Times(50, 250) || same*10 < changed*tier.Times(7, 8) {
				t.Errorf("of %d documents that were injected %d have the same bytes as before", changed, same)
			}
		})
	}
}

// roundTrip injects a file and undoes that. It returns the number of documents that injection changed, and the
// number of these that finally have the same bytes as before.
func roundTrip(t *testing.T, f File, o Options) (changed, same int) {
	t.Helper()
	injected, err := Inject([]File{f}, o, func(Message) {})
	if err != nil {
		t.Fatal(err)
	}
	undone, err := Uninject(injected.Files, func(m Message) {
		if m.Level != "note" {
			t.Errorf("%s", m)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	was, between, is := documents(f.Data), documents(injected.Files[0].Data), documents(undone.Files[0].Data)
	if len(was) != len(is) {
		t.Fatalf("%s: %d documents, then %d", f.Name, len(was), len(is))
	}
	for i := range was {
		if was[i] != between[i] {
			changed++
		}
		switch {
		case was[i] != is[i] && was[i] == between[i]:
			t.Errorf("%s: document %d was not injected, and has changed", f.Name, i+1)
		case was[i] == is[i] && was[i] != between[i]:
			same++
		}
		if d := cmp.Diff(dataOf(t, was[i]), dataOf(t, is[i])); d != "" {
			t.Errorf("%s: document %d is not as before (-was +is):\n%s", f.Name, i+1, d)
		}
	}
	return changed, same
}

func dataOf(t *testing.T, text string) (v any) {
	t.Helper()
	raw, err := manifest.JSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Empty lists are restored too, and so is the position of the author's own containers with our names.
func TestUninjectKeepsEmptyListsAndOrder(t *testing.T) {
	const text = `apiVersion: v1
kind: Pod
metadata: {name: empty, annotations: {}, labels: {}}
spec:
  nodeSelector: {}
  imagePullSecrets: []
  initContainers: []
  volumes: []
  containers:
  - {name: app, image: x, command: [/app], args: [], env: [], volumeMounts: [], livenessProbe: {grpc: {port: 80}}}
---
apiVersion: v1
kind: Pod
metadata: {name: ours}
spec:
  initContainers:
  - {name: one, image: x, command: [/one]}
  - {name: outrider-init, image: auto, resources: {limits: {cpu: 500m}}}
  - {name: two, image: x, command: [/two]}
  containers:
  - {name: app, image: x, command: [/app]}
  - {name: outrider-proxy, image: auto, resources: {limits: {cpu: 500m}}}
  - {name: web, image: x, command: [/web]}
---
apiVersion: v1
kind: Pod
metadata: {name: istios}
spec:
  containers:
  - {name: app, image: x, command: [/app]}
  - {name: istio-proxy, image: auto}
  - {name: web, image: x, args: [--port=80]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bare}
spec:
  selector: {matchLabels: {app: a}}
  template:
    spec:
      containers:
      - {name: app, image: x, command: [/app]}
`
	for _, on := range []startup.Kubernetes{28, 34} {
		if changed, _ := roundTrip(t, File{"pods.yaml", []byte(text)}, Options{Namespace: "x", Inject: inject.Options{Manual: true, Kubernetes: on}}); changed != 4 {
			t.Errorf("%d pods were injected", changed)
		}
	}
}

func documents(data []byte) (out []string) {
	for s := range manifest.Split(data) {
		out = append(out, string(s.Raw()))
	}
	return out
}

// Uninject removes the hook that injection added to another mesh's proxy, although that hook runs the proxy's
// own program and so looks like a hook of the author.
func TestUninjectTakesTheHookFromAnotherMeshesProxy(t *testing.T) {
	for _, start := range []string{"native", "hold"} {
		given := "kind: Pod\napiVersion: v1\nmetadata:\n  name: x\n  annotations: {outrider.dev/proxy: none, outrider.dev/start: " + start + "}\nspec:\n  containers:\n  - {name: web, image: a, command: [/app]}\n  - {name: istio-proxy, image: proxyv2, args: [proxy, sidecar]}\n"
		in, err := Inject([]File{{"pod.yaml", []byte(given)}}, Options{Namespace: "x", Inject: inject.Options{Manual: true, Kubernetes: 34}}, func(Message) {})
		if err != nil || !strings.Contains(string(in.Files[0].Data), "pilot-agent") {
			t.Fatalf("%s: %v: it has no hook:\n%s", start, err, in.Files[0].Data)
		}
		out, err := Uninject(in.Files, func(Message) {})
		if err != nil || strings.Contains(string(out.Files[0].Data), "lifecycle") {
			t.Errorf("%s: %v: the hook stays:\n%s", start, err, out.Files[0].Data)
		}
	}
}

func TestUninjectSaysWhatIsNotRecorded(t *testing.T) {
	const gated = `, command: [/outrider/bin/outrider-agent], args: [gate, --name, app, --after, outrider-proxy is healthy, --, /app, serve]`
	for name, tt := range map[string]struct {
		pod, want string
		refused   bool
		gone      string // a word that the result must not contain
	}{
		"not injected":                {pod: pod("", ""), want: "note: unchanged: it is not injected"},
		"another mesh's":              {pod: pod("", "}, {name: istio-proxy, image: p"), want: "note: unchanged: the container istio-proxy is another mesh's"},
		"a proxy without a record":    {pod: pod("", "}, {name: outrider-proxy, image: p"), want: "note: unchanged: it has a container of ours, and no annotation outrider.dev/status"},
		"a record that is cut":        {pod: pod(`outrider.dev/status: '{"containers":['`, ""), want: "error: annotation outrider.dev/status: unexpected end of JSON input (invalid-annotation)", refused: true},
		"a record of nothing":         {pod: pod(`outrider.dev/status: '{}'`, "}, {name: outrider-proxy, image: p"), want: "error: annotation outrider.dev/status: {} does not record what injection added", refused: true},
		"no record of what was there": {pod: pod(`outrider.dev/status: '{"containers":["outrider-proxy"],"revision":"default"}'`, "}, {name: outrider-proxy, image: p"), want: "warning: the annotation outrider.dev/overrides is missing", gone: "outrider-proxy"},
		"no record of the arguments": {pod: pod(`outrider.dev/status: '{"revision":"default"}', outrider.dev/overrides: '{}'`, gated),
			want: "warning: command and args of app become one command", gone: "outrider"},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			r, err := Uninject([]File{{"pod.yaml", []byte(tt.pod)}}, func(m Message) { said = append(said, m.Level+": "+m.Text) })
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(said, "\n"); !strings.HasPrefix(got, tt.want) {
				t.Errorf("said %q, want %q", got, tt.want)
			}
			if (r.Refused > 0) != tt.refused {
				t.Errorf("%d refused", r.Refused)
			}
			switch text := string(r.Files[0].Data); {
			case tt.gone == "" && text != tt.pod:
				t.Errorf("changed: %s", text)
			case tt.gone != "" && strings.Contains(text, tt.gone):
				t.Errorf("still has %s: %s", tt.gone, text)
			}
		})
	}
}

func pod(annotations, more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: shop, annotations: {" + annotations + "}}\nspec: {containers: [{name: app, image: a" + more + "}]}\n"
}
