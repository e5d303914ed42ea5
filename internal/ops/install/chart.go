// Package install installs Outrider in a cluster, and removes it again.
//
// It applies the chart in package charts as an ordinary release of Helm: "helm list" shows it, and
// helm can upgrade it or roll it back. In addition to Helm, this package upgrades
// CustomResourceDefinitions and recovers an interrupted release, and [Purge] removes the objects
// that the control plane itself has written.
package install

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"outrider.dev/charts"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/ops/installation"
)

// Folders of [charts.Files].
const chartFolder, profileFolder = "outrider", "profiles"

// unusable returns an error about values that the chart does not accept. Nothing was changed.
func unusable(format string, args ...any) error {
	return &cli.UsageError{Err: fmt.Errorf(format, args...), Hint: "docs/install.md describes each value"}
}

// Chart returns the chart that is part of this program.
func Chart() (*chart.Chart, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(charts.Files, chartFolder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := charts.Files.ReadFile(file)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(file, chartFolder+"/"), Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	return loader.LoadFiles(files)
}

// Profiles returns the names of the profiles, which are sets of values that come with the chart.
func Profiles() []string {
	entries, err := charts.Files.ReadDir(profileFolder)
	if err != nil {
		return nil // does not happen: the files are part of this program, and a test reads them
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return out
}

// A File is a file with values.
type File struct {
	Name string
	Data []byte
}

// WithProfile returns the values of a profile, changed by files and then by settings. A setting has the form of Helm's
// --set, "name=value". The profile may be empty. WithProfile fails for an unknown profile or invalid values.
func WithProfile(profile string, files []File, settings []string) (map[string]any, error) {
	if profile != "" {
		data, err := charts.Files.ReadFile(path.Join(profileFolder, profile+".yaml"))
		if err != nil {
			return nil, unusable("--profile=%q: must be one of %s", profile, strings.Join(Profiles(), ", "))
		}
		files = slices.Insert(slices.Clone(files), 0, File{"profile " + profile, data})
	}
	out := map[string]any{}
	for _, f := range files {
		values := map[string]any{}
		if err := manifest.DecodeStrict(f.Data, &values); err != nil {
			text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "error converting YAML to JSON: ")
			return nil, unusable("%s: %s", f.Name, text) // text has one line, like other errors
		}
		out = chartutil.MergeTables(values, out)
	}
	for _, s := range settings {
		if err := strvals.ParseInto(s, out); err != nil {
			return nil, unusable("--set %s: %w", s, err)
		}
	}
	return out, nil
}

// nameOf returns the name of the release with these values. Each revision is a release.
func nameOf(values map[string]any) string {
	revision, _ := values["revision"].(string)
	return ReleaseName(revision)
}

// ReleaseName returns the name of the release of a revision; an empty revision is the default one.
func ReleaseName(revision string) string {
	if revision == "" || revision == "default" {
		return "outrider"
	}
	return "outrider-" + revision
}

// Manifest returns the objects that an installation applies, in YAML, with the CustomResourceDefinitions first. It
// needs no cluster. It fails if the values are invalid.
func Manifest(namespace string, values map[string]any) (string, error) {
	c, err := Chart()
	if err != nil {
		return "", err
	}
	text, err := render(c, namespace, values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, crd := range c.CRDObjects() {
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", crd.Filename, strings.TrimSpace(string(crd.File.Data)))
	}
	return out.String() + text, nil
}

// rendered is the version of Kubernetes for which the chart is rendered without a cluster. With a cluster, Helm uses
// the cluster's version.
var rendered = chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}

// render returns the objects of the release in the order in which Helm applies them.
func render(c *chart.Chart, namespace string, values map[string]any) (string, error) {
	i := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	i.ReleaseName, i.Namespace, i.ClientOnly, i.DryRun, i.SkipCRDs = nameOf(values), namespace, true, true, true
	i.KubeVersion = &rendered
	r, err := i.Run(c, values)
	if err != nil {
		return "", valuesError(err)
	}
	return r.Manifest, nil
}

// valuesError turns an error of a template into an error about values. The chart is part of this program and tested,
// so a template fails only because of the values.
func valuesError(err error) error {
	text := strings.TrimPrefix(err.Error(), "values don't meet the specifications of the schema(s) in the following chart(s):\n")
	lines := strings.Split(strings.TrimSpace(strings.TrimPrefix(text, "outrider:\n")), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "- ")
	}
	return unusable("values: %s", strings.Join(lines, "; "))
}

// ReleaseOf returns the release that an installation with these values would make, for package check.
func ReleaseOf(namespace string, values map[string]any) (installation.Release, error) {
	out := installation.Release{Name: nameOf(values)}
	c, err := Chart()
	if err != nil {
		return out, err
	}
	text, err := render(c, namespace, values)
	if err != nil {
		return out, err
	}
	if out.Objects, err = objectsOf(text); err != nil {
		return out, err
	}
	out.Definitions, err = definitionsOf(c)
	return out, err
}

// definitionsOf returns the chart's CustomResourceDefinitions.
func definitionsOf(c *chart.Chart) (out []*unstructured.Unstructured, err error) {
	for _, crd := range c.CRDObjects() {
		objects, err := objectsOf(string(crd.File.Data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", crd.Filename, err)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// objectsOf returns the objects in a text of YAML documents, in their order.
func objectsOf(text string) (out []*unstructured.Unstructured, err error) {
	documents := releaseutil.SplitManifests(text)
	keys := make([]string, 0, len(documents))
	for key := range documents { // any order: the keys are sorted afterwards
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if len(a) != len(b) { // manifest-2 is before manifest-10
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys {
		o := map[string]any{}
		if err := manifest.Decode([]byte(documents[key]), &o); err != nil {
			return nil, err
		}
		if len(o) > 0 {
			out = append(out, &unstructured.Unstructured{Object: o})
		}
	}
	return out, nil
}

// Installed returns the values that were set for the newest revision of the release, or nil if there is no release.
func Installed(o Options) (map[string]any, error) {
	helm, err := o.configuration()
	if err != nil {
		return nil, err
	}
	r, err := last(helm, nameOf(o.Values))
	if err != nil || r == nil {
		return nil, err
	}
	if r.Config == nil {
		return map[string]any{}, nil
	}
	return r.Config, nil
}
