package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/pod/inject"
)

// pods are what comes to admission.
var pods = map[string]string{
	"an app with a command": plain,
	"an app with its image's command, a probe and a token": `
metadata: {generateName: shop-, labels: {app: shop}, annotations: {a: b}}
spec:
  serviceAccountName: shop
  volumes: [{name: kube-api-access-x7k2p, projected: {sources: [{serviceAccountToken: {path: token}}]}}]
  containers:
  - {name: app, image: shop, ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}, volumeMounts: [{name: kube-api-access-x7k2p, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]}`,
	"a migration and two apps": `
metadata: {name: shop-0}
spec:
  initContainers: [{name: mig, image: mig, command: [/mig]}]
  containers: [{name: app, image: shop, command: [/app]}, {name: two, image: two, command: [/two], lifecycle: {preStop: {exec: {command: [/end]}}}}]`,
	"an own container of the proxy's name, with a token": `
metadata: {generateName: shop-}
spec:
  volumes: [{name: kube-api-access-x7k2p, emptyDir: {}}]
  containers:
  - {name: app, image: shop, command: [/app], volumeMounts: [{name: kube-api-access-x7k2p, mountPath: /t}]}
  - {name: outrider-proxy, image: auto, volumeMounts: [{name: kube-api-access-x7k2p, mountPath: /t}]}`,
	"a job": `
metadata: {generateName: job-}
spec: {restartPolicy: Never, containers: [{name: job, image: job, command: [/job]}]}`,
}

// ways are options that give a pod different forms.
var ways = map[string]inject.Options{
	"1.28, without native sidecars": {Kubernetes: 28},
	"1.34":                          {Kubernetes: 34},
	"native":                        natively("true"),
	"not native":                    natively("false"),
}

func natively(value string) inject.Options {
	var o inject.Options
	o.Values.Pilot.Env = map[string]any{"ENABLE_NATIVE_SIDECARS": value}
	return o
}

// The API server asks again when another webhook has changed the pod after us, and in an
// upgrade another replica may answer, with other options.
func TestInjectingAgainGivesOneValidPod(t *testing.T) {
	forms := map[string]bool{}
	for podName, text := range pods {
		for firstName, first := range ways {
			for secondName, second := range ways {
				t.Run(fmt.Sprintf("%s; %s, then %s", podName, firstName, secondName), func(t *testing.T) {
					w := New(Options{Inject: first, Namespaces: enabled})
					given := podJSON(t, text)
					answer := decided(t, w, "shop", given)
					if !answer.Allowed || len(answer.Patch) == 0 {
						t.Fatalf("not injected: %+v", answer.Status)
					}
					injected := applied(t, given, answer.Patch)
					forms[form(t, injected)] = true
					if again := decided(t, w, "shop", injected); !again.Allowed || len(again.Patch) > 0 {
						t.Errorf("asked again by the same options: %s", again.Patch)
					}
					w.Use(second)
					other := decided(t, w, "shop", injected)
					if !other.Allowed {
						t.Fatalf("refused: %+v", other.Status)
					}
					twice := applied(t, injected, other.Patch)
					straight := applied(t, given, decided(t, w, "shop", given).Patch)
					checkPod(t, twice)
					// A command that was wrapped comes back as one list, so the pods are
					// compared by what stands where.
					if diff := cmp.Diff(form(t, straight), form(t, twice)); diff != "" {
						t.Errorf("the pod at once, and by way of the other (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
	if len(forms) < 5 {
		t.Errorf("the ways give %d forms only: they are no test of a change", len(forms))
	}
}

// form is where a pod's containers stand.
func form(t testing.TB, object []byte) string {
	pod := checkPod(t, object)
	var b strings.Builder
	for _, c := range pod.Spec.InitContainers {
		fmt.Fprintf(&b, "init %s %v; ", c.Name, c.RestartPolicy != nil)
	}
	for _, c := range pod.Spec.Containers {
		fmt.Fprintf(&b, "%s; ", c.Name)
	}
	return b.String()
}

// What another webhook adds between two calls is injected in the second.
func TestAContainerThatCameSinceIsKept(t *testing.T) {
	w := New(Options{Namespaces: enabled})
	given := podJSON(t, plain)
	injected := applied(t, given, decided(t, w, "shop", given).Patch)
	more := applied(t, injected, []byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"late","image":"late","command":["/late"]}}]`))
	again := decided(t, w, "shop", more)
	if !again.Allowed {
		t.Fatalf("refused: %+v", again.Status)
	}
	pod := checkPod(t, applied(t, more, again.Patch))
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if !strings.Contains(strings.Join(names, " "), "late") {
		t.Errorf("containers %v: late is lost", names)
	}
}

// A remembered answer is the one that would have been made.
func TestWhatIsRememberedIsWhatWouldBeAnswered(t *testing.T) {
	inPatch := 0
	for name, text := range pods {
		t.Run(name, func(t *testing.T) {
			remembering, fresh := New(Options{Namespaces: enabled}), New(Options{Namespaces: enabled, Limits: Limits{Memory: -1}})
			first := podJSON(t, text)
			second := bytes.ReplaceAll(first, []byte("x7k2p"), []byte("q9zz4"))
			for i, object := range [][]byte{first, second, first} {
				got, want := decided(t, remembering, "shop", object), decided(t, fresh, "shop", object)
				inPatch += bytes.Count(got.Patch, []byte("q9zz4"))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answer %d (-fresh +remembered):\n%s", i, diff)
				}
			}
			if n := remembering.Counters().Remembered; n != 2 {
				t.Errorf("%d answers were remembered, want 2", n)
			}
		})
	}
	if inPatch == 0 {
		t.Error("the name is in no patch: they are no test of putting it in")
	}
}

func TestWhatIsNotTheSameIsAskedAnew(t *testing.T) {
	token := `{metadata: {generateName: a-}, spec: {volumes: [{name: kube-api-access-x7k2p, emptyDir: {}}], containers: [{name: app, image: shop, command: [/app]}]}}`
	base := func() (string, string, string, string) { return token, "shop", Path, "enabled" }
	tests := map[string]func() (text, namespace, path, label string){
		"another image": func() (string, string, string, string) {
			t, n, p, l := base()
			return strings.ReplaceAll(t, "image: shop", "image: ship"), n, p, l
		},
		"another namespace":              func() (string, string, string, string) { t, _, p, l := base(); return t, "ship", p, l },
		"another path":                   func() (string, string, string, string) { t, n, _, l := base(); return t, n, Path + "/net/a", l },
		"another label of the namespace": func() (string, string, string, string) { t, n, p, _ := base(); return t, n, p, "disabled" },
		"two names of a token": func() (string, string, string, string) {
			t, n, p, l := base()
			return strings.ReplaceAll(t, "emptyDir: {}}", "emptyDir: {}}, {name: kube-api-access-aaaaa, emptyDir: {}}"), n, p, l
		},
		"the blot itself": func() (string, string, string, string) {
			t, n, p, l := base()
			return strings.ReplaceAll(t, "x7k2p", blot), n, p, l
		},
	}
	for name, other := range tests {
		t.Run(name, func(t *testing.T) {
			sum := func(text, namespace, path, label string) question {
				return ask(podJSON(t, text), path, inject.Namespace{Name: namespace, Labels: map[string]string{"istio-injection": label}}, unreadBy(inject.Options{}))
			}
			a, b := sum(base()), sum(other())
			if !a.known || b.known && a.sum == b.sum {
				t.Errorf("known %v, %v; the same: %v", a.known, b.known, a.sum == b.sum)
			}
		})
	}
}

func TestMemoryHasAnEnd(t *testing.T) {
	w := New(Options{Namespaces: enabled, Limits: Limits{Memory: 100 << 10}})
	for i := range 200 {
		object, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": fmt.Sprint("p", i)},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "shop", "command": []string{"/app"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		decided(t, w, "shop", object)
		m := w.settings.Load().memo
		if m.size > m.most || len(m.answers)*entryCost > m.most {
			t.Fatalf("%d answers of %d bytes, at most %d", len(m.answers), m.size, m.most)
		}
	}
}
