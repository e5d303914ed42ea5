package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// heavy lists modules that must not be linked into the binaries that run in every pod and on every node.
var heavy = []string{"k8s.io/", "google.golang.org/grpc", "github.com/envoyproxy/", "sigs.k8s.io/"}

// A source is a package with its imports, as parsed from its files.
type source struct {
	imports map[string]bool
	doc     bool
}

// sources parses every package of the module itself, and does not run the go command: the go command caches a
// test's result, and looks for changes only in files that the test itself has read.
func sources(t *testing.T) map[string]source {
	t.Helper()
	root := filepath.Join("..", "..")
	out := map[string]source{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, mod := os.Stat(filepath.Join(file, "go.mod"))
			if file != root && (mod == nil || strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir // another module, or a folder without Go files
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		add(out, filepath.ToSlash(rel), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func add(out map[string]source, pkg string, f *ast.File) {
	s, ok := out[pkg]
	if !ok {
		s.imports = map[string]bool{}
	}
	s.doc = s.doc || f.Doc != nil
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		s.imports[p] = true
	}
	out[pkg] = s
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func TestEveryPackageSaysWhatItPromises(t *testing.T) {
	for pkg, s := range sources(t) {
		if !s.doc {
			t.Errorf("package %s has no comment", pkg)
		}
	}
}

func TestWhatRunsEverywhereStaysSmall(t *testing.T) {
	for _, command := range []string{"outrider-agent", "outrider-node"} {
		staysSmall(t, command)
	}
}

func staysSmall(t *testing.T, command string) {
	all := sources(t)
	seen := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for imported := range all[pkg].imports {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				visit(own)
			}
			for _, h := range heavy {
				if strings.HasPrefix(imported, h) {
					t.Errorf("%s links %s, by %s", command, imported, pkg)
				}
			}
		}
	}
	visit(path.Join("cmd", command))
	if len(seen) < 5 {
		t.Errorf("only %d packages seen: the test looks in the wrong place", len(seen))
	}
}

// docs/architecture.md names every folder internal/WING/FOLDER with packages, and every file and folder that it
// names exists.
func TestArchitecturePageIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:startup|internal|cmd|test|bench|build)/[a-z0-9_/.-]*)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Errorf("the page names %d files and folders: the test looks for the wrong thing", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("docs/architecture.md names %s: %v", m[1], err)
		}
	}
	rooms := map[string]bool{}
	for pkg := range sources(t) {
		if parts := strings.Split(pkg, "/"); parts[0] == "internal" && len(parts) > 2 {
			rooms[strings.Join(parts[:3], "/")+"/"] = true
		}
	}
	for room := range rooms {
		if !strings.Contains(string(text), "`"+room) {
			t.Errorf("docs/architecture.md does not name %s", room)
		}
	}
}

// Only package manifest decodes YAML, because it first limits the size with expanded aliases.
func TestOneDecoderOfYAML(t *testing.T) {
	n := 0
	for _, dir := range []string{"charts", "cmd", "internal", "startup"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				return err
			}
			names := map[string]bool{} // the names under which the file imports a YAML package
			for _, spec := range parsed.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if parts := strings.Split(path, "/"); !slices.ContainsFunc(parts, func(p string) bool { return p == "yaml" || strings.HasPrefix(p, "yaml.v") }) {
					continue
				}
				name := "yaml"
				if spec.Name != nil {
					name = spec.Name.Name
				}
				names[name] = true
			}
			ast.Inspect(parsed, func(node ast.Node) bool {
				call, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, ok := call.X.(*ast.Ident)
				if !ok || !names[of.Name] || !decodesYAML.MatchString(call.Sel.Name) {
					return true
				}
				if strings.HasPrefix(file, "../../internal/base/manifest/") {
					n++
				} else {
					t.Errorf("%s: %s.%s; want package manifest, or its limits", fset.Position(call.Pos()), of.Name, call.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Error("package manifest decodes nothing: this test does not see it")
	}
}

var decodesYAML = regexp.MustCompile(`^(Unmarshal|YAMLToJSON|NewDecoder|NewYAMLOrJSONDecoder|NewYAMLToJSONDecoder|ToJSON)`)
