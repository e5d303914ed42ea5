package validation

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	definitions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	definitionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	security "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"outrider.dev/test/chart"
)

// everything holds chart values that enable all options of the chart.
const everything = `
global: {priorityClassName: high, imagePullSecrets: [a], networkPolicy: {enabled: true}}
pilot: {autoscaleEnabled: true, memory: {targetAverageUtilization: 70}, autoscaleBehavior: {scaleDown: {stabilizationWindowSeconds: 60}}, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack,
  nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], envVarFrom: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}], env: {GOGC: 50},
  volumes: [{name: c, secret: {secretName: c}}], volumeMounts: [{name: c, mountPath: /c}], serviceAnnotations: {a: b}, podAnnotations: {a: b}, podLabels: {c: d}}
sidecarInjectorWebhook: {enableNamespacesByDefault: true}
monitoring: {dashboard: {enabled: true, annotations: {a: b}}}
`

// chartValues returns sets of chart values, by name: the values of each profile, the defaults, values with a
// revision, and [everything].
func chartValues(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for name, text := range map[string]string{ // any order: the result is a map
		"defaults": "{}", "revision": "revision: canary", "everything": everything,
		"nodes": "node: {enabled: true, nodeSelector: {a: b}}\nglobal: {imagePullSecrets: [a]}", "nodes of a revision": "revision: canary\nnode: {enabled: true, standby: false, nriPluginDir: ''}",
		"nothing": "features: {injection: false, gatewayRoutes: false, policies: false, hosts: false, backendPolicies: false, otherMeshes: false}",
	} {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		out[name] = v
	}
	profiles, err := chart.Profiles()
	if err != nil || len(profiles) < 3 {
		t.Fatal(profiles, err)
	}
	for _, name := range profiles {
		if out["profile "+name], err = chart.Profile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// renderChart returns the objects for a version of Kubernetes, as JSON.
func renderChart(t *testing.T, v map[string]any, minor string) (out [][]byte) {
	t.Helper()
	all, err := chart.Objects(v, "1."+minor)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		raw, err := yaml.YAMLToJSONStrict([]byte(o.Text))
		if err != nil {
			t.Fatalf("%s: %v", o.File, err)
		}
		out = append(out, raw)
	}
	return out
}

// releases lists the latest release of each minor version of Kubernetes: the version of the module client-go, and its
// checksum. This module contains the schemas of all built-in kinds, for server-side apply.
var releases = []struct{ minor, version, sum string }{
	{"29", "v0.29.15", "h1:zCBOXKCtz9Hl8boKUGs8zbtZEP6pc7O8Ov3ma+gnS6o="},
	{"30", "v0.30.14", "h1:D81QZvBtv897JU4HRsx4YoaCDnzeZSvB8eApgmbtXVA="},
	{"31", "v0.31.14", "h1:d4/G0xfksNIbMWH7ghjzOwC5bTAwQ20gABTjZw7fLlQ="},
	{"32", "v0.32.13", "h1:FxVdGzgrWW8QBprX/xJjoxs9tE06UJIbuy8IfNoxn0c="},
	{"33", "v0.33.13", "h1:gyirIFpLEF9RltmrUkkObQFkxeumU2hRcxiDsVfrf1w="},
	{"34", "v0.34.13", "h1:47Nf1YByDhpYtyOB9zd56FB9bEDxsozH1ic3VyU7zV0="},
	{"35", "v0.35.10", "h1:HXF+042qTnXFFISMiuMHiM5yN2lVonVQQAkpIWxSGPk="},
	{"36", "v0.36.6", "h1:/nxcosTtar7svq4xjpzMPirzoShNK2+nSZ7AGDL6c3k="},
}

// schemas reads the schemas of a release from its module.
func schemas(t *testing.T, version, sum string) *typed.Parser {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/client-go@"+version).Output()
	var module struct{ Dir, Sum, Error string }
	if e := json.Unmarshal(out, &module); e != nil || err != nil || module.Error != "" {
		t.Skipf("k8s.io/client-go@%s cannot be downloaded: %v %v %s", version, err, e, module.Error)
	}
	if module.Sum != sum {
		t.Fatalf("k8s.io/client-go@%s has the sum %s, want %s", version, module.Sum, sum)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(module.Dir, "applyconfigurations", "internal", "internal.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.HasPrefix(l.Value, "`types:") {
			text, err = strconv.Unquote(l.Value)
		}
		return err == nil
	})
	if err != nil || text == "" {
		t.Fatalf("no schemas in k8s.io/client-go@%s: %v", version, err)
	}
	p, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// typeOf returns the name of an object's kind in the schemas.
func typeOf(o map[string]any) string {
	group, version, ok := strings.Cut(o["apiVersion"].(string), "/")
	if !ok {
		group, version = "core", group
	}
	group, _, _ = strings.Cut(group, ".")
	return "io.k8s.api." + group + "." + version + "." + o["kind"].(string)
}

// In each version of Kubernetes, the objects that the chart renders use only existing fields, with the right types.
func TestChartOnEachVersion(t *testing.T) {
	for _, r := range releases {
		t.Run("1."+r.minor, func(t *testing.T) {
			parser := schemas(t, r.version, r.sum)
			checked := 0
			for name, v := range chartValues(t) { // any order: each is a case
				all := renderChart(t, v, r.minor)
				for _, raw := range all {
					var o map[string]any
					if err := json.Unmarshal(raw, &o); err != nil {
						t.Fatal(err)
					}
					kind := parser.Type(typeOf(o))
					if !kind.IsValid() {
						t.Errorf("%s: Kubernetes has no %s", name, typeOf(o))
						continue
					}
					if _, err := kind.FromUnstructured(o); err != nil {
						t.Errorf("%s: %s: %v", name, typeOf(o), err)
					}
					checked++
				}
			}
			if checked < 90 {
				t.Errorf("%d objects only", checked)
			}
			t.Logf("%d objects against the schemas of k8s.io/client-go@%s", checked, r.version)
		})
	}
}

// The schemas detect a field that does not exist yet, and a string in place of a number.
func TestSchemasFindMistakes(t *testing.T) {
	parser := schemas(t, releases[0].version, releases[0].sum)
	for text, want := range map[string]string{
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","restartPolicyRules":[]}]}}`: "field not declared in schema",
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"2"}}`:                          "expected numeric",
	} {
		var o map[string]any
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Type(typeOf(o)).FromUnstructured(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The API server's own code accepts the control plane's Deployment without a warning, and Pod Security classifies it
// as "restricted".
func TestChartsDeployment(t *testing.T) {
	found := 0
	for name, v := range chartValues(t) { // any order: each is a case
		all := renderChart(t, v, "34")
		for _, raw := range all {
			var o metav1.TypeMeta
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind != "Deployment" {
				continue
			}
			found++
			verdict, err := judge(raw)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(verdict.errors)+len(verdict.warnings) > 0 || verdict.level != security.LevelRestricted {
				t.Errorf("%s: %s %q %q", name, verdict.level, verdict.errors, verdict.warnings)
			}
		}
	}
	if found != len(chartValues(t)) {
		t.Errorf("%d Deployments", found)
	}
}

// The API server's own code accepts the chart's CustomResourceDefinitions.
func TestChartsDefinitions(t *testing.T) {
	crds, err := chart.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, text := range crds { // any order: each is judged alone
		var v1 definitionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(text), &v1); err != nil {
			t.Fatal(err)
		}
		names = append(names, v1.Name)
		definitionsv1.SetDefaults_CustomResourceDefinition(&v1)
		definitionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
		stored := slices.IndexFunc(v1.Spec.Versions, func(v definitionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
		if stored < 0 {
			t.Fatalf("%s has no version that is stored", v1.Name)
		}
		v1.Status.StoredVersions = []string{v1.Spec.Versions[stored].Name}
		var d definitions.CustomResourceDefinition
		if err := definitionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &d, nil); err != nil {
			t.Fatal(err)
		}
		if errs := definitionvalidation.ValidateCustomResourceDefinition(t.Context(), &d); len(errs) > 0 {
			t.Errorf("%s: %v", v1.Name, errs.ToAggregate())
		}
	}
	if !slices.Contains(names, "hosts.outrider.dev") || !slices.Contains(names, "peerauthentications.security.istio.io") {
		t.Errorf("%q", names)
	}
}
