package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const interop = "../../docs/interop.md"

// claims are texts that a table cell may contain instead of the name of a test, if there is no feature to test.
var claims = []string{"no", "none", "none is used", "not tested", "not its task", "as without", "of the pod's resolver", "files or SDS of yours", "files in `/etc/certs`"}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`( \\([A-Z]\\))?")

// peers maps the mark after a test's name to a text that the file of such a test must contain. The text shows that
// the test runs the real peer.
var peers = map[string]string{" (I)": "istioBin(t, ", " (C)": "python3"}

// Each test that docs/interop.md names exists. Each cell of the page's table of peers contains the name of a test or
// one of the texts in claims.
func TestInteropNamesTests(t *testing.T) {
	raw, err := os.ReadFile(interop)
	if err != nil {
		t.Fatal(err)
	}
	page, all := string(raw), testsOfTheTree(t)
	named := testName.FindAllStringSubmatch(page, -1)
	if len(named) < 30 {
		t.Errorf("%d names of tests: the test looks in the wrong place", len(named))
	}
	for _, m := range named {
		sources := strings.Join(all[m[1]], "\n")
		if sources == "" {
			t.Errorf("%s names %s, which is no test", interop, m[1])
		}
		if peer := peers[m[2]]; !strings.Contains(sources, peer) {
			t.Errorf("%s: %s is marked%s, but its file has no %s", interop, m[1], m[2], peer)
		}
	}
	_, table, found := strings.Cut(page, "<!-- peers -->\n")
	table, _, end := strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if !found || !end || len(lines) < 10 {
		t.Fatalf("%s: no table of peers", interop)
	}
	columns := strings.Count(lines[0], "|")
	for _, line := range lines[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells)+1 != columns {
			t.Errorf("%d cells: %s", len(cells), line)
		}
		for _, cell := range cells[1:] {
			first, _, _ := strings.Cut(strings.TrimSpace(cell), ":")
			if !testName.MatchString(cell) && !slices.Contains(claims, first) {
				t.Errorf("%s: the cell %q names no test", strings.TrimSpace(cells[0]), cell)
			}
		}
	}
}

// testsOfTheTree returns the names of the test functions in all packages, each with the text of the files that
// contain a function of this name.
func testsOfTheTree(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && path != "../..":
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				out[f.Name.Name] = append(out[f.Name.Name], string(text))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
