package charts

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// load reads the embedded chart, as the commands do.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	var files []*loader.BufferedFile
	err := fs.WalkDir(Files, "outrider", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := Files.ReadFile(name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, "outrider/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// profiles are the names of the files of values.
func profiles(t *testing.T) []string {
	t.Helper()
	entries, err := Files.ReadDir("profiles")
	if err != nil || len(entries) < 3 {
		t.Fatal(entries, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out
}

func profile(t *testing.T, name string) map[string]any {
	t.Helper()
	data, err := Files.ReadFile("profiles/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(data))
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// render returns the manifests by their files.
func render(t *testing.T, v map[string]any) (map[string]string, error) {
	t.Helper()
	c := load(t)
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "outrider", Namespace: "outrider-system", IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// decode is strict: a field that the API does not have is an error.
var decode = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// objects renders and decodes.
func objects(t *testing.T, v map[string]any) map[string]runtime.Object {
	t.Helper()
	files, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]runtime.Object{}
	for name, text := range files { // any order: out is a map
		if path.Ext(name) != ".yaml" {
			continue
		}
		for _, doc := range strings.Split("\n"+text, "\n---") {
			if fields := values(t, doc); len(fields) == 0 {
				continue
			}
			if m, err := monitor(doc); m || err != nil {
				if err != nil {
					t.Errorf("%s: %v\n%s", name, err, doc)
				}
				continue
			}
			o, kind, err := decode.Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, doc)
				continue
			}
			meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(kind.Kind, "/", meta["metadata"].(map[string]any)["name"])
			if out[key] != nil {
				t.Errorf("%s: %s is there twice", name, key)
			}
			out[key] = o
		}
	}
	return out
}

// A monitoring is any of the Prometheus operator's kinds, with the fields that the chart uses, as its
// documentation of the API has them.
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
	} `json:"relabelings"`
}

// monitor reports whether a document is one of those kinds.
func monitor(doc string) (bool, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil || kind.APIVersion != "monitoring.coreos.com/v1" {
		return false, err
	}
	return true, yaml.UnmarshalStrict([]byte(doc), &monitoring{})
}

func TestLint(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, Files); err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.AllWithKubeVersion(path.Join(dir, "outrider"), nil, "outrider-system", nil).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// configMap is one of the rendered objects.
func configMap(t *testing.T, v map[string]any, name string) *corev1.ConfigMap {
	t.Helper()
	m, ok := objects(t, v)["ConfigMap/"+name].(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("no ConfigMap %s", name)
	}
	return m
}

// Each profile renders, and each object has only fields of its kind.
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

// The definitions are no templates, have only fields of the API, and say that an uninstall may
// delete them. The API server's own validation of them is in test/validation.
func TestDefinitions(t *testing.T) {
	var names []string
	for _, d := range load(t).CRDObjects() {
		if bytes.Contains(d.File.Data, []byte("{{")) {
			t.Errorf("%s: Helm does not render definitions", d.Filename)
		}
		var v1 apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(d.File.Data, &v1); err != nil {
			t.Errorf("%s: %v", d.Filename, err)
			continue
		}
		names = append(names, v1.Name)
		if v1.Labels["outrider.dev/made-by"] != "outriderd" {
			t.Errorf("%s: labels %v", d.Filename, v1.Labels)
		}
	}
	if want := []string{"hosts.outrider.dev", "peerauthentications.security.istio.io"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
