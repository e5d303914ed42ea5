package kube

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// istio is a webhook configuration like that of Istio's injector. There is no server for it.
const istio = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-sidecar-injector}
webhooks:
- name: namespace.sidecar-injector.istio.io
  clientConfig: {url: "https://127.0.0.1:1/inject"}
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchExpressions: [{key: istio-injection, operator: In, values: [enabled]}]}
`

// While the webhook of another injector selects pods by Istio's labels, outriderd injects only pods that Outrider's
// labels select, and logs this once. The test uses the namespace "injected", which has Istio's label.
func besideAnotherInjector(t *testing.T, w world, log func() string) {
	t.Helper()
	injected := func(labels string) (bool, string) {
		t.Helper()
		pod := `{apiVersion: v1, kind: Pod, metadata: {generateName: app-, namespace: injected, labels: {` + labels + `}}, spec: {containers: [{name: app, image: "test.outrider.dev/base:1", command: [sleep, 1h]}]}}`
		out := kubectl(t, pod, "create", "--dry-run=server", "--output=jsonpath={.spec.initContainers[*].name} {.spec.containers[*].name}", "--filename=-")
		return strings.Contains(out, "outrider-proxy"), out
	}
	is := func(want bool, labels string) {
		t.Helper()
		if got, out := injected(labels); got != want {
			t.Errorf("labels {%s}: injected %v, want %v: %s\n%s", labels, got, want, out, log())
		}
	}
	is(true, "")
	apply(t, istio)
	remove := func() {
		w.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), "istio-sidecar-injector", metav1.DeleteOptions{})
	}
	t.Cleanup(remove)
	const warning = `"Istio's labels select pods for another injector`
	until(t, "outriderd logs the other injector", func() bool {
		return strings.Contains(log(), warning) && strings.Contains(log(), `"webhook_configurations":["istio-sidecar-injector"]`)
	}, log)
	_, out := injected("")
	if want := "Warning: outrider: not injected (other-injector): Istio's labels"; !strings.Contains(out, want) {
		t.Errorf("the answer to the client lacks %q: %s", want, out)
	}
	is(false, "")
	is(false, `sidecar.istio.io/inject: "true"`)
	is(true, `outrider.dev/inject: "true"`)
	kubectl(t, "", "annotate", "mutatingwebhookconfiguration", "istio-sidecar-injector", "changed=somehow")
	remove()
	until(t, "Istio's labels request injection again", func() bool { ok, _ := injected(""); return ok }, log)
	if n := strings.Count(log(), warning); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}
