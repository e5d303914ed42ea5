package podspec

import (
	"fmt"
	"strings"
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

func TestParseSaysWhere(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no YAML":         {"kind: Pod\n---\na: [", `f.yaml: document 2 (line 3): line 1: did not find expected node content`},
		"no object":       {"a: b", `f.yaml: document 1 (line 1): kind: missing: this is no Kubernetes object`},
		"no object, list": {"- a", `f.yaml: document 1 (line 1): this is no Kubernetes object`},
		"a wrong type": {"kind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: app, command: sleep 5}]}}}",
			`f.yaml: document 1 (line 1): Deployment d: spec.template.spec.containers[0].command: must be a list of strings, not a string`},
		"no containers": {"kind: Pod\nmetadata: {name: d}\nspec: {}", `f.yaml: document 1 (line 1): Pod d: spec.containers: a pod needs at least one container`},
		"no name":       {"kind: Pod\nspec: {containers: [{image: i}]}", `f.yaml: document 1 (line 1): Pod: spec.containers[0].name: missing`},
		"a key twice":   {"kind: Pod\nkind: Pod", `f.yaml: document 1 (line 1): unmarshal errors:   line 2: key "kind" already set in map`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse("f.yaml", []byte(tt.text))
			if diff := cmp.Diff(tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An error of a manifest names the element, what it is, and what would be right, and not the
// types of a program.
func TestErrorsAreNotTheDecoders(t *testing.T) {
	pod := func(containers string) string {
		return "kind: Pod\nmetadata: {name: x}\nspec: {containers: " + containers + "}\n"
	}
	for text, want := range map[string]string{
		pod("[{name: a}, {name: b, command: run}]"):        "Pod x: spec.containers[1].command: must be a list of strings, not a string",
		pod("[{name: a, args: [a, 1]}]"):                   "Pod x: spec.containers[0].args[1]: must be a string, not a number",
		pod("{name: a}"):                                   "Pod x: spec.containers: must be a list, not an object",
		pod("[{name: a, ports: [{containerPort: http}]}]"): "Pod x: spec.containers[0].ports[0].containerPort: must be a whole number, not a string",
		pod("[{name: a, tty: 'yes'}]"):                     "Pod x: spec.containers[0].tty: must be true or false, not a string",
		pod("[{name: a, securityContext: root}]"):          "Pod x: spec.containers[0].securityContext: must be an object, not a string",
		pod("[{name: a, imagePullPolicy: {a: b}}]"):        "Pod x: spec.containers[0].imagePullPolicy: must be a string, not an object",
		pod("[{name: a, ports: [{containerPort: 1.5}]}]"):  "containerPort",
		"kind: 3\n": "kind: must be a string, not a number",
		"kind: ConfigMap\ndata: {{ .Values.data }}\n":         "f: document 1 (line 1): {{ }} belongs to a template: render it first, as with helm template",
		"{{- if .Values.on }}\nkind: ConfigMap\n{{- end }}\n": "{{ }} belongs to a template",
		"kind: ConfigMap\ndata: {[a]: b}\n":                   "a key must be a string",
	} {
		_, _, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "map[") {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
}
