package charts_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"outrider.dev/charts"
	"outrider.dev/test/chart"
)

// profiles returns the names of the profiles.
func profiles(t *testing.T) []string {
	t.Helper()
	out, err := chart.Profiles()
	if err != nil || len(out) < 3 {
		t.Fatal(out, err)
	}
	return out
}

func profile(t *testing.T, name string) map[string]any {
	t.Helper()
	out, err := chart.Profile(name)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// render returns the rendered manifests by file name.
func render(t *testing.T, v map[string]any) (map[string]string, error) {
	t.Helper()
	return chart.Files(v, "")
}

// decode returns an error for an unknown field.
var decode = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// objects renders the chart and decodes the manifests. The result is by kind and name.
func objects(t *testing.T, v map[string]any) map[string]runtime.Object {
	t.Helper()
	all, err := chart.Objects(v, "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]runtime.Object{}
	for _, o := range all {
		if o.APIVersion == "monitoring.coreos.com/v1" {
			if err := yaml.UnmarshalStrict([]byte(o.Text), &monitoring{}); err != nil {
				t.Errorf("%s: %v\n%s", o.File, err, o.Text)
			}
			continue
		}
		decoded, _, err := decode.Decode([]byte(o.Text), nil, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", o.File, err, o.Text)
			continue
		}
		key := o.Kind + "/" + o.Name
		if out[key] != nil {
			t.Errorf("%s: %s is there twice", o.File, key)
		}
		out[key] = decoded
	}
	return out
}

// A monitoring is an object of any of the Prometheus operator's kinds. It has the fields that the chart uses,
// as the operator's API documentation defines them.
type monitoring struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel          string                `json:"jobLabel,omitempty"`
		Selector          *metav1.LabelSelector `json:"selector,omitempty"`
		NamespaceSelector struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Endpoints    []endpoint `json:"endpoints"`
		PodEndpoints []endpoint `json:"podMetricsEndpoints"`
		Groups       []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

type endpoint struct {
	Port        string `json:"port"`
	Path        string `json:"path"`
	Interval    string `json:"interval"`
	Relabelings []struct {
		Action       string   `json:"action"`
		SourceLabels []string `json:"sourceLabels"`
		Regex        string   `json:"regex"`
		Replacement  string   `json:"replacement"`
		TargetLabel  string   `json:"targetLabel"`
	} `json:"relabelings"`
}

// "helm lint" reports nothing, with any profile.
func TestLint(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, charts.Files); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(profiles(t), "") {
		var v map[string]any
		if name != "" {
			v = profile(t, name)
		}
		for _, m := range lint.AllWithKubeVersion(path.Join(dir, "outrider"), v, chart.Namespace, nil).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("profile %q: %s", name, m)
			}
		}
	}
}

// configMap returns one of the rendered ConfigMaps.
func configMap(t *testing.T, v map[string]any, name string) *corev1.ConfigMap {
	t.Helper()
	m, ok := objects(t, v)["ConfigMap/"+name].(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("no ConfigMap %s", name)
	}
	return m
}

// Each profile can be rendered, and each object contains only fields of its kind.
func TestProfilesRender(t *testing.T) {
	for _, name := range append(profiles(t), "") {
		t.Run("profile "+name, func(t *testing.T) {
			v := map[string]any{}
			if name != "" {
				v = profile(t, name)
			}
			all := objects(t, v)
			for _, want := range []string{"Deployment/outriderd", "Service/outriderd", "ServiceAccount/outriderd", "ClusterRole/outriderd"} {
				if all[want] == nil {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// The CustomResourceDefinitions are plain YAML, not templates, contain only fields of the API, and have the
// label that allows an uninstallation to delete them. test/validation tests their validation by an API
// server.
func TestDefinitions(t *testing.T) {
	var names []string
	all, err := chart.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range all { // any order: the names are sorted below
		if strings.Contains(text, "{{") {
			t.Errorf("%s: Helm does not render definitions", file)
		}
		var d apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		names = append(names, d.Name)
		if d.Labels["outrider.dev/made-by"] != "outriderd" {
			t.Errorf("%s: labels %v", file, d.Labels)
		}
	}
	slices.Sort(names)
	if want := []string{"authorizationpolicies.security.istio.io", "backendpolicies.outrider.dev", "grpcroutes.gateway.networking.k8s.io", "hosts.outrider.dev", "httproutes.gateway.networking.k8s.io", "peerauthentications.security.istio.io", "referencegrants.gateway.networking.k8s.io"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
