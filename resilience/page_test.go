package resilience

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An application that needs no gRPC and no OpenTelemetry links neither.
func TestDependencies(t *testing.T) {
	pkg, err := build.Default.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	var foreign []string
	for _, path := range pkg.Imports {
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			foreign = append(foreign, path)
		}
	}
	for _, path := range foreign {
		if !strings.HasPrefix(path, "github.com/failsafe-go/failsafe-go") || strings.Contains(path, "failsafegrpc") || strings.Contains(path, "failsafehttp") {
			t.Errorf("package resilience imports %s", path)
		}
	}
	if len(foreign) == 0 {
		t.Error("no import of failsafe-go found: the test looks in the wrong place")
	}
}

// The Go code in docs/resilience.md is also in the examples, so it is tested.
func TestThePageShowsExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/resilience.md")
	if os.IsNotExist(err) {
		t.Skip("docs/resilience.md is in the repository and not in the module")
	}
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "example_test.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			bodies = append(bodies, spaces(string(source[set.Position(f.Body.Lbrace).Offset+1:set.Position(f.Body.Rbrace).Offset])))
		}
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Errorf("%d blocks of Go: the test looks in the wrong place", len(blocks))
	}
	for _, b := range blocks {
		if !slices.ContainsFunc(bodies, func(body string) bool { return strings.Contains(body, spaces(b[1])) }) {
			t.Errorf("no example has this part of the page:\n%s", b[1])
		}
	}
}

// spaces removes differences in white space.
func spaces(s string) string { return strings.Join(strings.Fields(s), " ") }
