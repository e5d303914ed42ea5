package charts_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/charts"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
)

var update = flag.Bool("update", false, "write the schema's values without effect, and the table of docs/install.md")

const schemaFile = "outrider/values.schema.json"

// A schema is a decoded JSON schema.
type schema = map[string]any

func readSchema(t *testing.T) schema {
	t.Helper()
	data, err := charts.Files.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	out := schema{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// noEffect is the prefix of the description of a value of Istio that injection ignores with a warning.
const noEffect = "no effect: "

func properties(s schema) map[string]schema {
	out := map[string]schema{}
	all, _ := s["properties"].(map[string]any)
	for name, p := range all { // any order: out is a map
		out[name] = p.(schema)
	}
	return out
}

// leaves returns, by path, the values for which the schema lists no fields.
func leaves(parent string, s schema) map[string]schema {
	out := map[string]schema{}
	for name, p := range properties(s) { // any order: out is a map
		path := strings.TrimPrefix(parent+"."+name, ".")
		if p["properties"] == nil || path == "meshConfig" {
			out[path] = p
			continue
		}
		maps.Copy(out, leaves(path, p))
	}
	return out
}

func without(s schema) bool {
	text, _ := s["description"].(string)
	return strings.HasPrefix(text, noEffect)
}

// fields returns the paths of values. It does not go below the paths in stop.
func fields(parent string, v map[string]any, stop map[string]schema) []string {
	var out []string
	for name, value := range v { // any order: the result is sorted
		path := strings.TrimPrefix(parent+"."+name, ".")
		if below, ok := value.(map[string]any); ok && stop[path] == nil {
			out = append(out, fields(path, below, stop)...)
		} else {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// values.yaml contains all values of the schema that have an effect, and no others.
func TestValuesAreThoseOfTheSchema(t *testing.T) {
	all := leaves("", readSchema(t))
	var want []string
	for path, s := range all { // any order: sorted below
		if !without(s) {
			want = append(want, path)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(want, fields("", defaults(t), all)); d != "" {
		t.Errorf("schema and values.yaml (-schema +values):\n%s", d)
	}
}

func defaults(t *testing.T) map[string]any {
	t.Helper()
	data, err := charts.Files.ReadFile("outrider/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(data))
}

// at returns the schema of a path. If the schema does not contain the whole path, it returns the schema of
// the longest part that exists, and the rest of the path.
func at(s schema, path string) (found schema, rest string) {
	for path != "" {
		name, below, _ := strings.Cut(path, ".")
		next, ok := properties(s)[name]
		if !ok {
			return s, path
		}
		s, path = next, below
	}
	return s, ""
}

// The schema contains each value that injection or the chart uses
// (internal/core/pod/inject/settings/keys.go). It also contains each value without effect, with the reason;
// "go test -update" writes these.
func TestSchemaHasEveryKey(t *testing.T) {
	root := readSchema(t)
	if *update {
		updateSchema(t, root)
	}
	for _, k := range settings.Keys() {
		path := strings.TrimSuffix(k.Name, ".*")
		if k.Surface != settings.InValues || path == "pilot.env" || strings.HasPrefix(path, "env.") { // any environment variable is allowed
			continue
		}
		s, rest := at(root, path)
		free := s["additionalProperties"] != false
		switch {
		case k.Refused != "":
			if rest == "" || free {
				t.Errorf("%s is accepted: %s", k.Name, k.Refused)
			}
		case k.Without != "":
			if rest != "" || s["description"] != noEffect+k.Without {
				t.Errorf("%s: the schema says %q; go test ./charts -update writes it", k.Name, s["description"])
			}
		case rest != "" && !free || without(s):
			t.Errorf("%s has an effect, and is not in the schema", k.Name)
		}
	}
}

// formerDefaults are values of the previous chart that this one does not have, with their defaults: people have copied them
// into their files. They are accepted for one release; any other value asks for what is not there any more, and is refused.
var formerDefaults = map[string]string{"serve.push": "on-demand"}

// Values files of the previous version still work.
func TestFormerDefaults(t *testing.T) {
	for path, value := range formerDefaults { // any order: the cases are independent
		if _, err := render(t, object(path, value)); err != nil {
			t.Errorf("%s=%s: %v", path, value, err)
		}
	}
}

// updateSchema removes the values without effect from the schema, and adds the current ones.
func updateSchema(t *testing.T, root schema) {
	t.Helper()
	remove(root)
	for _, k := range settings.Keys() {
		path := strings.TrimSuffix(k.Name, ".*")
		if k.Surface != settings.InValues || k.Without == "" || path == "pilot.env" {
			continue
		}
		s := root
		for name := range strings.SplitSeq(path, ".") {
			if s["properties"] == nil {
				s["properties"] = map[string]any{}
			}
			below := s["properties"].(map[string]any)
			if below[name] == nil {
				below[name] = schema{}
			}
			s = below[name].(schema)
		}
		s["description"] = noEffect + k.Without
	}
	for path, value := range formerDefaults { // any order: each is a property of its own
		parent, name := path[:strings.LastIndex(path, ".")], path[strings.LastIndex(path, ".")+1:]
		s, _ := at(root, parent)
		s["properties"].(map[string]any)[name] = schema{"description": noEffect + "it is the default of the previous version; the next one refuses it", "enum": []any{value}}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(schemaFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// remove removes the values without effect, and the objects that contain no other values.
func remove(s schema) (empty bool) {
	all, _ := s["properties"].(map[string]any)
	for name, p := range all { // any order: the properties are independent
		if p := p.(schema); without(p) || p["properties"] != nil && remove(p) {
			delete(all, name)
		}
	}
	return len(all) == 0
}

// object returns values that consist of one field, given by its path.
func object(path string, value any) map[string]any {
	names := strings.Split(path, ".")
	for i := len(names) - 1; i > 0; i-- {
		value = map[string]any{names[i]: value}
	}
	return map[string]any{names[0]: value}
}

// If a value has the wrong type, rendering fails, and the error contains the path.
func TestEveryTypeIsChecked(t *testing.T) {
	log.SetOutput(io.Discard) // Helm warns when a value that should be a table is not one
	defer log.SetOutput(os.Stderr)
	for path, s := range leaves("", readSchema(t)) { // any order: the cases are independent
		if without(s) {
			continue
		}
		var wrong any = []any{[]any{"of another type"}}
		if kind := fmt.Sprint(s["type"]); strings.Contains(kind, "array") {
			wrong = "text"
		}
		_, err := render(t, object(path, wrong))
		if where := "'/" + strings.ReplaceAll(path, ".", "/") + "'"; err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%s=%v: %v\nwant an error with %s", path, wrong, err, where)
		}
	}
}

// An invalid value is refused before anything is applied, and the error contains its path.
func TestBadValuesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"pilot: {replicaCount: -1}":                                    "/pilot/replicaCount",
		"pilot: {replicas: 3}":                                         "'replicas' not allowed",
		"replicaCount: 3\nnothing: 1":                                  "'nothing' not allowed",
		"global: {proxy: {excludeOutboundPort: '80'}}":                 "'excludeOutboundPort' not allowed",
		"global: {proxy: {includeInboundPorts: 'eighty'}}":             "/global/proxy/includeInboundPorts",
		"global: {proxy: {holdApplicationUntilProxyStarts: 'yes'}}":    "/global/proxy/holdApplicationUntilProxyStarts",
		"global: {imagePullPolicy: Sometimes}":                         "/global/imagePullPolicy",
		"global: {proxy: {statusPort: 70000}}":                         "/global/proxy/statusPort",
		"sidecarInjectorWebhook: {failurePolicy: Retry}":               "/sidecarInjectorWebhook/failurePolicy",
		"sidecarInjectorWebhook: {ownLabels: never}":                   "/sidecarInjectorWebhook/ownLabels",
		"revision: Canary":                                             "/revision",
		"authority: {certificateLife: a day}":                          "/authority/certificateLife",
		"authority: {secret: mine}":                                    "'secret' not allowed",
		"serve: {networks: [10.0.0.0]}":                                "/serve/networks/0",
		"serve: {slowStart: soon}":                                     "/serve/slowStart",
		"serve: {push: full}":                                          "value must be 'on-demand'",
		"features: {host: false}":                                      "'host' not allowed",
		"monitoring: {serviceMonitor: {interval: often}}":              "/monitoring/serviceMonitor/interval",
		"pilot: {resources: {request: {cpu: 1}}}":                      "'request' not allowed",
		"pilot: {seccompProfile: {type: None}}":                        "/pilot/seccompProfile/type",
		"kind: IstioOperator":                                          "'kind' not allowed",
		"authority: {secretName: ''}\npilot: {replicaCount: 2}":        "pilot.replicaCount: more than one needs authority.secretName",
		"authority: {secretName: ''}\npilot: {autoscaleEnabled: true}": "pilot.autoscaleEnabled: more than one pod needs authority.secretName",
		"revision: canary\nsidecarInjectorWebhook: {ownLabels: 'on'}":  "sidecarInjectorWebhook.ownLabels: on and revision contradict each other",
		"pilot: {autoscaleEnabled: true, autoscaleMax: 1}":             "pilot.autoscaleMax: less than pilot.autoscaleMin",
		"pilot: {rollingMaxSurge: 0, rollingMaxUnavailable: 0}":        "pilot.rollingMaxSurge: no pod could be replaced",
	} {
		if _, err := render(t, values(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %q", text, err, want)
		}
	}
}

// Values of Istio that have no effect are accepted, and injection warns about each of them.
func TestValuesWithoutEffectReachInjection(t *testing.T) {
	v, warnings := injection(t, values(t, "global: {proxy: {privileged: true, excludeOutboundPorts: 80}, variant: debug}\nztunnel: {a: b}"))
	all := strings.Join(warnings, "\n")
	for _, want := range []string{"global.proxy.privileged has no effect", "global.variant has no effect", "ztunnel has no effect"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning with %q: %s", want, all)
		}
	}
	if v.Global.Proxy.ExcludeOutboundPorts != "80" || len(warnings) != 3 {
		t.Errorf("%+v\n%s", v.Global.Proxy, all)
	}
}

// injection returns the settings that outriderd reads from the rendered ConfigMap, and the warnings.
func injection(t *testing.T, v map[string]any) (settings.Values, []string) {
	t.Helper()
	out, warnings, err := settings.ParseValues([]byte(configMap(t, v, "outriderd-injection").Data["values.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	return out, warnings
}

// With the chart's default values, injection has the same result as without values, and there are no
// warnings.
func TestDefaultsAreThoseOfInjection(t *testing.T) {
	chart, warnings := injection(t, nil)
	if len(warnings) > 0 {
		t.Errorf("warnings: %q", warnings)
	}
	for _, text := range []string{
		"{metadata: {name: a}, spec: {containers: [{name: app, image: a, command: [/a], readinessProbe: {httpGet: {port: 80}}}]}}",
		"{metadata: {name: a, annotations: {outrider.dev/start: native, outrider.dev/native-release: probe}}, spec: {containers: [{name: app, image: a, command: [/a]}]}}",
		"{metadata: {name: a, annotations: {outrider.dev/init: none}}, spec: {initContainers: [{name: i, image: a, command: [/a]}], containers: [{name: app, image: a, command: [/a]}]}}",
	} {
		for _, labels := range []map[string]string{nil, {"istio-injection": "enabled"}} {
			if d := cmp.Diff(injected(t, text, labels, settings.Values{}), injected(t, text, labels, chart)); d != "" {
				t.Errorf("injection without values, and with the chart's:\n%s", d)
			}
		}
	}
}

func injected(t *testing.T, text string, labels map[string]string, v settings.Values) string {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
		t.Fatal(err)
	}
	r, err := inject.Pod(&pod, inject.Namespace{Name: "shop", Labels: labels}, inject.Options{Values: v, Kubernetes: 34})
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(out), r.Reason, r.Notes, r.Warnings)
}
