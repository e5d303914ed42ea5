package controlplane

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This tests the flag. test/kube tests it with other injectors in a cluster.
func TestWhichLabelsRequestInjection(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := filepath.Dir(file("namespaces.yaml", `
{apiVersion: v1, kind: Namespace, metadata: {name: theirs, labels: {istio-injection: enabled}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ours, labels: {outrider.dev/injection: enabled}}}
`))
	for _, tt := range []struct {
		how          OwnLabels
		theirs, ours string
	}{
		{"", "injected", "injected"},
		{OwnLabelsAuto, "injected", "injected"}, // without a cluster
		{OwnLabelsOff, "injected", "injected"},
		{OwnLabelsOn, "other-injector", "injected"},
	} {
		p, err := open(t.Context(), Options{Folder: folder, State: t.TempDir(), Webhook: ":0", Injection: Injection{OwnLabels: tt.how}}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		for again := range 2 { // the options must be the same after the files are read again
			for namespace, want := range map[string]string{"theirs": tt.theirs, "ours": tt.ours} {
				r := httptest.NewRequest("POST", "/inject", strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},"namespace":"`+
					namespace+`","operation":"CREATE","object":{"spec":{"containers":[{"name":"a","image":"a","command":["/a"]}]}}}}`))
				r.Header.Set("Content-Type", "application/json")
				got := httptest.NewRecorder()
				p.admission.webhook.ServeHTTP(got, r)
				if text := got.Body.String(); got.Code != 200 || !strings.Contains(text, `"auditAnnotations":{"injection":"`+want+`"}`) {
					t.Errorf("%q, %s, %d: want %s: %.300s", tt.how, namespace, again, want, text)
				}
			}
			p.admission.useInjection()
		}
	}
	values := file("values.yaml", "revision: canary")
	_, err := open(t.Context(), Options{Folder: folder, State: t.TempDir(), Webhook: ":0", Injection: Injection{Values: values, OwnLabels: OwnLabelsOn}}.withDefaults())
	if want := `revision "canary" is requested by Istio's label istio.io/rev`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
