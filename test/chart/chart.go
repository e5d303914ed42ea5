// Package chart renders the Helm chart for tests, as "helm template" does.
package chart

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"outrider.dev/charts"
)

// Namespace is the namespace of the release.
const Namespace = "outrider-system"

// Load reads the embedded chart.
func Load() (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(charts.Files, "outrider", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := charts.Files.ReadFile(name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, "outrider/"), Data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}

// Profile returns the values of a profile.
func Profile(name string) (map[string]any, error) {
	text, err := charts.Files.ReadFile("profiles/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return chartutil.ReadValues(text)
}

// Profiles returns the names of the profiles.
func Profiles() ([]string, error) {
	entries, err := charts.Files.ReadDir("profiles")
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out, err
}

// Files renders the templates for a version of Kubernetes such as 1.34; empty means Helm's default.
func Files(values map[string]any, kube string) (map[string]string, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}
	caps := chartutil.DefaultCapabilities.Copy()
	if kube != "" {
		major, minor, _ := strings.Cut(kube, ".")
		caps.KubeVersion = chartutil.KubeVersion{Version: "v" + kube + ".0", Major: major, Minor: minor}
		if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, caps.KubeVersion.Version) {
			return nil, fmt.Errorf("the chart wants Kubernetes %s", c.Metadata.KubeVersion)
		}
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "outrider", Namespace: Namespace, IsInstall: true, Revision: 1}, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// An Object is a rendered object.
type Object struct{ APIVersion, Kind, Name, File, Text string }

// Objects renders the objects, in the order in which Helm applies them.
func Objects(values map[string]any, kube string) ([]Object, error) {
	files, err := Files(values, kube)
	if err != nil {
		return nil, err
	}
	var out []Object
	for name, text := range files { // any order: sorted below
		if path.Ext(name) != ".yaml" {
			continue
		}
		for doc := range strings.SplitSeq("\n"+text, "\n---") {
			var o struct {
				APIVersion string
				Kind       string
				Metadata   struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if o.Kind != "" {
				out = append(out, Object{o.APIVersion, o.Kind, o.Metadata.Name, name, doc})
			}
		}
	}
	rank := func(o Object) string { return fmt.Sprintf("%02d %s %s", slices.Index(order, o.Kind), o.Kind, o.Name) }
	slices.SortFunc(out, func(a, b Object) int { return strings.Compare(rank(a), rank(b)) })
	return out, nil
}

// order is Helm's order of the chart's kinds; other kinds come first.
var order = []string{"NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"Service", "Deployment", "HorizontalPodAutoscaler", "MutatingWebhookConfiguration"}

// Manifest renders the namespace and the chart's objects for kubectl apply. It leaves out the given kinds of objects.
func Manifest(values string, but ...string) (string, error) {
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return "", err
	}
	all, err := Objects(v, "")
	if err != nil {
		return "", err
	}
	out := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + Namespace + "}\n"
	for _, o := range all {
		if !slices.Contains(but, o.Kind) {
			out += "---\n" + o.Text + "\n"
		}
	}
	return out, nil
}

// Definitions returns the text of the chart's CustomResourceDefinitions, by their names.
func Definitions() (map[string]string, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, d := range c.CRDObjects() {
		out[strings.TrimSuffix(path.Base(d.Filename), ".yaml")] = string(d.File.Data)
	}
	return out, nil
}
