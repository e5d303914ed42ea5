package validation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/test/tier"
)

// hostile lists values for settings. Each is invalid for some settings.
var hostile = []string{"", "0", "-1", "1", "99999999999", "true", "x", "X y", "a=b", "*", "{}", "[]", "null", `{"a": {}}`, `{"a": "b"}`, `["a"]`, `[""]`, "128m", "0.0001", "15021", "../..",
	strings.Repeat("a", 300), "a\nb", "é", "{", `{"a": {"mountPath": "/a"}}`, `{"exec": {"command": ["a"]}}`, `{"preStop": {}}`, `{"type": "x"}`, `{"type": "Localhost"}`, `{"limits": {"x": 1}}`,
	`{"limits": {"memory": "100m"}}`, `{"limits": {"x.example/y": 1.5}}`, `{"requests": {"x.example/y": 1}}`, `{"limits": {"x.example/y": 2}}`, `{"limits": {"hugepages-2Mi": "2Mi"}}`, `{"a=b": "c"}`, `{"": "c"}`, `{"X y": "z"}`, `{"preStop": {"sleep": {"seconds": 1000}}}`,
	`{"preStop": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}}`, `{"postStart": {"httpGet": {"path": "/"}}}`, `{"preStop": {"exec": {}}}`, `{"data": {"hostPath": {"path": ""}}}`, `{"data": {"configMap": {}}}`, `{"data": {"mountPath": "/x", "subPath": "../a"}}`,
	`{"data": {"emptyDir": {"sizeLimit": "-1"}}}`}

// If injection accepts a setting with a hostile value, the injected pod is valid.
func TestHostileSettings(t *testing.T) {
	of := sane(t)[0]
	pods, refused, values := 0, 0, 0
	seen := map[string]bool{} // results already judged: most settings have no effect on a given pod
	check := func(what string, pod *corev1.Pod, o inject.Options, err error) {
		pods++
		var r inject.Result
		if err == nil {
			r, err = inject.Pod(pod, inject.Namespace{Name: namespace}, o)
		}
		switch {
		case err != nil:
			refused++
		case r.Injected:
			raw := string(of.with(t, r.Pod))
			if seen[raw] {
				return
			}
			seen[raw] = true
			v := of.judged(t, r.Pod)
			for _, e := range slices.Concat(v.errors, v.warnings) {
				t.Errorf("%s: not refused, and the API server refuses the pod or warns: %s", what, e)
			}
		}
	}
	for _, k := range settings.Keys() {
		if k.Means == "" {
			continue // the setting has no effect
		}
		for _, value := range hostile {
			what := fmt.Sprintf("%s %s: %q", k.Surface, k.Name, value)
			if values++; !tier.Sample(what, 4) {
				continue
			}
			pod := of.Pod.DeepCopy()
			o := inject.Options{Manual: true}
			var err error
			switch k.Surface {
			case settings.InAnnotations:
				pod.Annotations = annotations{k.Name: value}
			case settings.InLabels:
				pod.Labels = annotations{k.Name: value}
				if len(of.judged(t, pod).errors) > 0 {
					continue
				}
			case settings.InValues:
				o.Values, _, err = settings.ParseValues(nested(k.Name, value))
			case settings.InMesh:
				o.Mesh, err = settings.ParseMesh(nested(k.Name, value))
			case settings.InProxyConfig:
				o.Mesh, err = settings.ParseMesh(nested("defaultConfig."+k.Name, value))
			}
			check(what, pod, o, err)
		}
	}
	t.Logf("%d of %d settings with values that some do not take: %d refused by injection, the others give %d pods, and each is valid", pods, values, refused, len(seen))
}

// nested returns JSON with a value at a path.
func nested(path, value string) []byte {
	var v any
	if yaml.Unmarshal([]byte(value), &v) != nil {
		v = value
	}
	steps := strings.Split(path, ".")
	slices.Reverse(steps)
	for _, step := range steps {
		v = map[string]any{step: v}
	}
	text, _ := json.Marshal(v) // cannot fail for values from YAML
	return text
}
