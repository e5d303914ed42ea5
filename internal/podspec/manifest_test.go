package podspec

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

func TestParseSaysWhere(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no YAML":         {"kind: Pod\n---\na: [", `f.yaml: document 2 (line 2): line 2: did not find expected node content`},
		"no object":       {"a: b", `f.yaml: document 1 (line 1): kind: missing: this is no Kubernetes object`},
		"no object, list": {"- a", `f.yaml: document 1 (line 1): this is no Kubernetes object`},
		"a wrong type": {"kind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: app, command: sleep 5}]}}}",
			`f.yaml: document 1 (line 1): Deployment d: spec.template.spec.containers.command: cannot unmarshal string into Go struct field Container.spec.containers.command of type []string`},
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
