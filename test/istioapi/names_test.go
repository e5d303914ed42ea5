// Package istioapi contains a list of the names of Istio's settings, names.txt, and compares it with the
// names that istio.io/api and the charts of istio.io/istio publish. The tests of internal/core/pod/inject
// compare the list with Outrider's own table. To find the names that a new version of Istio adds, run "go get
// istio.io/api@latest istio.io/istio/operator/pkg/apis@latest" in this folder, and then go test. With -update,
// go test writes them to the list.
package istioapi

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"istio.io/api/annotation"
	"istio.io/api/label"
	mesh "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/manifests"
	"istio.io/istio/operator/pkg/apis"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what Istio publishes into names.txt")

// published returns a line for each of Istio's settings: the kind of setting, such as an annotation, and the name.
func published(t *testing.T) []string {
	var out []string
	for _, a := range annotation.AllResourceAnnotations() {
		out = append(out, "annotation "+a.Name)
	}
	for _, l := range label.AllResourceLabels() {
		out = append(out, "label "+l.Name)
	}
	for place, message := range map[string]proto.Message{"MeshConfig": &mesh.MeshConfig{}, "ProxyConfig": &mesh.ProxyConfig{}} {
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			out = append(out, place+" "+fields.Get(i).JSONName())
		}
	}
	for _, name := range values(t) {
		out = append(out, "value "+name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// discovery is the folder of istiod's chart, which also contains the values for injection.
const discovery = "charts/istio-control/istio-discovery/"

// values returns the names of the values in Istio's API, in the charts of istiod and of the base, and in the
// injection template.
func values(t *testing.T) []string {
	out := fieldsOf("", (&apis.Values{}).ProtoReflect().Descriptor())
	for _, chart := range []string{discovery, "charts/base/"} {
		var defaults struct {
			Values map[string]any `json:"_internal_defaults_do_not_set"`
		}
		if err := yaml.Unmarshal(file(t, chart+"values.yaml"), &defaults); err != nil || len(defaults.Values) == 0 {
			t.Fatalf("%s: %d values, %v", chart, len(defaults.Values), err)
		}
		out = append(out, keysOf("", defaults.Values)...)
	}
	read := regexp.MustCompile(`\.Values((?:\.\w+)+)`).FindAllStringSubmatch(string(file(t, discovery+"files/injection-template.yaml")), -1)
	if len(read) == 0 {
		t.Fatal("the template reads no value")
	}
	for _, match := range read {
		out = append(out, match[1][1:])
	}
	return out
}

func file(t *testing.T, name string) []byte {
	text, err := manifests.FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fieldsOf returns the paths of all fields of an Istio message.
func fieldsOf(parent string, message protoreflect.MessageDescriptor) (out []string) {
	fields := message.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		path := parent + string(f.Name())
		if below := f.Message(); below != nil && !f.IsList() && !f.IsMap() && below.ParentFile().Package() == message.ParentFile().Package() && below != message {
			out = append(out, fieldsOf(path+".", below)...)
		} else {
			out = append(out, path)
		}
	}
	return out
}

// keysOf returns the paths of all values of a JSON object, such as global.hub.
func keysOf(parent string, object map[string]any) (out []string) {
	for name, value := range object {
		if below, isObject := value.(map[string]any); isObject && len(below) > 0 {
			out = append(out, keysOf(parent+name+".", below)...)
		} else {
			out = append(out, parent+name)
		}
	}
	return out
}

func TestNamesAreThoseOfTheAPI(t *testing.T) {
	const file = "names.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "\n\n")
	listed, now := strings.Split(strings.TrimSpace(rest), "\n"), published(t)
	if *update {
		if err := os.WriteFile(file, []byte(before+"\n\n"+strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range now {
		if !slices.Contains(listed, name) {
			t.Errorf("Istio has %s, and names.txt has not: run go test -update, and give it a row in internal/core/pod/inject/settings/keys.go", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(now, name) {
			t.Errorf("names.txt has %s, and Istio has not: run go test -update", name)
		}
	}
}
