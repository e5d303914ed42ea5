package webhook

import (
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

// The API server calls again when another webhook has changed the pod after us, and in an
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
						t.Errorf("a second review by the same options: %s", again.Patch)
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
