package files

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// Each scenario is a folder as a txtar archive. The file named "want" in it contains the expected mesh and
// problems.
func TestScenarios(t *testing.T) {
	scenarios, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scenarios) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range scenarios {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir, want := t.TempDir(), ""
			kept := archive.Files[:0:0]
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = string(f.Data)
					continue
				}
				kept = append(kept, f)
				write(t, filepath.Join(dir, f.Name), string(f.Data))
			}
			l, err := walk(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			f := newFolder(dir, mesh.Config{})
			f.apply(l)
			got := asYAML(t, f.builder.Mesh())
			for _, p := range f.problems() {
				got += fmt.Sprintf("problem %s\n", p)
			}
			if *update {
				archive.Files = append(kept, txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// asYAML returns a mesh as YAML without zero values.
func asYAML(t *testing.T, m *mesh.Mesh) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"services": m.Services(), "workloads": m.Workloads()})
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(pruned(tree))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// pruned removes zero values, and returns nil for a zero value. An endpoint's workload is replaced by its
// name.
func pruned(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		if w, ok := v["Workload"].(map[string]any); ok {
			v["Workload"] = w["Name"]
		}
		for key, field := range v {
			if v[key] = pruned(field); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	case nil, bool, float64, string:
		if v == nil || v == false || v == 0.0 || v == "" {
			return nil
		}
	}
	return tree
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// reread writes a file in a folder, and reads the folder again.
func reread(t *testing.T, f *folder, name, text string) {
	t.Helper()
	write(t, filepath.Join(f.root, name), text)
	l, err := walk(f.root, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.apply(l)
}

func TestWatchNeedsAFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, "")
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "folder " + filepath.Join(dir, "none") + ": cannot be read: no such file or directory",
		file:                       "folder " + file + ": is not a folder",
	} {
		if _, err := Watch(t.Context(), path, Options{}); err == nil || err.Error() != want {
			t.Errorf("Watch: %v, want %s", err, want)
		}
	}
}

func TestLineOf(t *testing.T) {
	const text = `# a service
apiVersion: v1
metadata:
  annotations:
    networking.istio.io/exportTo: "x y"
  name: web
spec:
  ports:
  - name: a

    port: 1
  -
    name: b
    port: 2
  - port: 3
    name: c
  rules:
    - matches:
        - path: {type: Exact}
          headers:
          - name: x
`
	for path, want := range map[string]int{
		"":                                   1,
		"spec":                               6,
		"spec.ports[0].port":                 10,
		"spec.ports[1].port":                 13,
		"spec.ports[2].port":                 14,
		"spec.ports[2].name":                 15,
		"spec.ports[2].none":                 14,
		"spec.ports[9].port":                 7,
		"spec.rules[0].matches[0].path.type": 18,
		"spec.rules[0].matches[0].headers[0].name":          20,
		"metadata.annotations.networking.istio.io/exportTo": 4,
		"metadata.labels": 2,
		"spec.ports[x":    7,
		"..":              1,
	} {
		if got := lineOf(nodeOf([]byte(text)), path); got != want {
			t.Errorf("lineOf(%q) = %d, want %d", path, got, want)
		}
	}
}

// lineBreaks matches the line breaks of YAML.
var lineBreaks = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// For any content of a file there is no panic, problems have a position in the file, and a second read has
// the same result.
func FuzzManifest(f *testing.F) {
	scenarios, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range scenarios {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Add([]byte("---\n--- {}\n...\n{\"kind\":\"List\",\"items\":[{\"kind\":\"Service\",\"apiVersion\":\"v1\"}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := len(lineBreaks.FindAll(data, -1)) + 1
		next := &file{path: "f.yaml"}
		next.parse(data, nil)
		for _, p := range next.problems {
			if p.Message == "" || p.Document < 1 || p.Line < 1 || p.Line > lines {
				t.Errorf("of %d lines: %+v", lines, p)
			}
		}
		b := build.New(mesh.Config{})
		for key, place := range next.parts {
			if place.part.Key() != key {
				t.Errorf("%v is stored as %v", place.part.Key(), key)
			}
			b.Set(place.part)
		}
		asYAML(t, b.Mesh())
		again := &file{path: "f.yaml"}
		again.parse(data, next.documents)
		if !reflect.DeepEqual(next.problems, again.problems) || !reflect.DeepEqual(next.parts, again.parts) {
			t.Errorf("read again it differs: %v, %v", next.problems, again.problems)
		}
	})
}
