package podfile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const text = `# a comment only
---
kind: ConfigMap
metadata: {name: c}
---
apiVersion: v1
kind: List
items:
- {kind: Pod, metadata: {name: a}, spec: {containers: [{name: app}]}}
- {kind: DaemonSet, metadata: {name: b}, spec: {template: {spec: {containers: [{name: app}]}}}}
---
kind: CronJob
metadata: {generateName: c-}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: app, imagePullPolicie: Never}]}}}}}
---
kind: Rollout
metadata: {name: d}
spec: {template: {spec: {containers: [{name: app}]}}}
---
{"kind": "PodList", "items": [{"metadata": {"name": "e"}, "spec": {"containers": [{"name": "app"}]}}]}
`
	objects, others, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, fmt.Sprint(o.Document, " ", o, " ", o.Field("spec"), " ", o.Unknown))
	}
	want := []string{
		"2 Pod a spec []",
		"2 DaemonSet b spec.template.spec []",
		"3 CronJob c- spec.jobTemplate.spec.template.spec [spec.jobTemplate.spec.template.spec.containers[0].imagePullPolicie]",
		"4 Rollout d spec.template.spec []",
		"5 Pod e spec []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ConfigMap"}, others); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

// Parse ignores what kubectl ignores: documents and list items that are null.
func TestNullIsNoObject(t *testing.T) {
	text := "null\n---\n~\n---\nkind: List\nitems:\n- null\n- kind: Pod\n  metadata: {name: x}\n  spec: {containers: [{name: a}]}\n---\nkind: List\nitems:\n"
	objects, others, err := Parse("f", []byte(text))
	if err != nil || len(objects) != 1 || objects[0].Index != 0 || objects[0].Name != "x" || len(others) != 1 {
		t.Errorf("%v, %v, %v", objects, others, err)
	}
}

// An error names the document and the field, and says what would be valid. It uses the terms of the API, not of
// Go.
func TestErrorsNameThePlaceAndTheRemedy(t *testing.T) {
	const at = "f: document 1 (line 1): "
	pod := func(containers string) string {
		return "kind: Pod\nmetadata: {name: x}\nspec: {containers: " + containers + "}\n"
	}
	for text, want := range map[string]string{
		"kind: Pod\n---\na: [": "f: document 2 (line 3): line 1: did not find expected node content",
		"a: b":                 at + "kind: missing: this is no Kubernetes object",
		"- a":                  at + "this is no Kubernetes object",
		"kind: Pod\nmetadata: {name: d}\nspec: {}":                                                 at + "Pod d: spec.containers: a pod needs at least one container",
		"kind: Pod\nspec: {containers: [{image: i}]}":                                              at + "Pod: spec.containers[0].name: missing",
		"kind: Pod\nkind: Pod":                                                                     at + `unmarshal errors:   line 2: key "kind" already set in map`,
		"kind: Job\nspec: {template: {spec: {containers: [{args: 5}]}}}":                           at + "Job: spec.template.spec.containers[0].args: must be a list of strings, not a number",
		pod("[{name: a}, {name: b, command: run}]"):                                                at + "Pod x: spec.containers[1].command: must be a list of strings, not a string",
		pod("[{name: a, args: [a, 1]}]"):                                                           at + "Pod x: spec.containers[0].args[1]: must be a string, not a number",
		pod("{name: a}"):                                                                           at + "Pod x: spec.containers: must be a list, not an object",
		pod("[{name: a, ports: [{containerPort: http}]}]"):                                         at + "Pod x: spec.containers[0].ports[0].containerPort: must be a whole number, not a string",
		pod("[{name: a, tty: 'yes'}]"):                                                             at + "Pod x: spec.containers[0].tty: must be true or false, not a string",
		pod("[{name: a, securityContext: root}]"):                                                  at + "Pod x: spec.containers[0].securityContext: must be an object, not a string",
		pod("[{name: a, imagePullPolicy: {a: b}}]"):                                                at + "Pod x: spec.containers[0].imagePullPolicy: must be a string, not an object",
		pod("[{name: a, ports: [{containerPort: 1.5}]}]"):                                          at + "Pod x: spec.containers[0].ports[0].containerPort: must be a whole number, not 1.5",
		"kind: Pod\nmetadata: {name: x, labels: {a: b, c: true}}\nspec: {containers: [{name: a}]}": at + "Pod x: metadata.labels.c: must be a string, not true or false",
		"kind: 3\n": at + "kind: must be a string, not a number",
		"kind: ConfigMap\ndata: {{ .Values.data }}\n":         at + "{{ }} belongs to a template: render it first, as with helm template",
		"{{- if .Values.on }}\nkind: ConfigMap\n{{- end }}\n": at + "did not find expected node content; {{ }} belongs to a template: render it first, as with helm template",
		"kind: ConfigMap\ndata: {[a]: b}\n":                   at + "a key must be a string",
	} {
		_, _, err := Parse("f", []byte(text))
		if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestClaimsOfAStatefulSet(t *testing.T) {
	const set = "apiVersion: apps/v1\nkind: %s\nspec: {template: {spec: {containers: [{name: db}]}}, volumeClaimTemplates: %s}\n"
	for _, tt := range []struct{ kind, claims, want string }{
		{"StatefulSet", "[{metadata: {name: data}}, {metadata: {name: log}}]", "[data log]"},
		{"StatefulSet", "3", "[]"},
		{"Deployment", "[{metadata: {name: data}}]", "[]"},
	} {
		objects, _, err := Parse("f.yaml", fmt.Appendf(nil, set, tt.kind, tt.claims))
		if err != nil || len(objects) != 1 || fmt.Sprint(objects[0].Claims) != tt.want {
			t.Errorf("%+v: %v, %v", tt, objects, err)
		}
	}
}
