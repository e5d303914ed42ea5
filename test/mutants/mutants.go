// Package mutants checks that tests notice when a rule of the code changes.
//
// A [Mutant] is a source file with one expression or one statement replaced. [Run] builds
// the tests of the calling package once, with all mutants in one binary, and then runs the
// named tests once for each mutant: at least one of them must fail. A mutant that no test
// can notice carries the reason beside it, in Survives.
//
//	func TestMutants(t *testing.T) {
//		mutants.Run(t, "TestCheck", map[string]mutants.Mutant{
//			"a timeout of zero ends the wait at once": {File: "check.go", From: `e.Timeout > 0`, To: `true`},
//			"the event is not recorded":               {File: "check.go", From: `c.record(ev)`, To: ``},
//		})
//	}
//
// The sources on disk are not touched: the changed files reach the compiler as an overlay.
// Put the mutants into the package that they change, and name tests that take seconds:
// they run once per mutant.
package mutants

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Mutant is one file of the package with From replaced by To.
type Mutant struct {
	File string // in the folder of the calling test

	// From is the text of one whole expression or statement that the file has once. If it
	// has it more often, In is a text that it has once, with one From in it.
	From, In string

	// To has the type of From where that is an expression. Both are evaluated, in
	// whichever order, unless they are recognisable as conditions (a comparison, a logical
	// operator, true, false): so a value with side effects needs a mutant of its whole
	// statement. An empty To deletes a statement.
	To string

	// Tests are the names of the tests that must notice this mutant, separated by "|";
	// empty: those given to Run.
	Tests string

	// Survives is why no test can notice the mutant. If one does, Run fails as well:
	// the reason is then wrong.
	Survives string
}

// Run fails for each mutant that the tests, a list of names separated by "|", do not
// notice. A panic is not a verdict of a test: a mutant that causes one fails too.
func Run(t *testing.T, tests string, list map[string]Mutant) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Skip("this is a mutant")
	}
	binary, err := build(t.TempDir(), ".", list)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := play(binary, ".", "", allTests(tests, list)); err != nil {
		t.Fatalf("without any mutant: %v\n%s", err, out)
	}
	for name, m := range list {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.Tests = firstOf(m.Tests, tests)
			if problem := judge(binary, ".", name, m); problem != "" {
				t.Errorf("%s: with %q instead of %q, %s", m.File, m.To, m.From, problem)
			}
		})
	}
}

// judge returns what is wrong with a mutant: empty if its tests notice it, or if they do not
// and it has a reason to survive.
func judge(binary, dir, name string, m Mutant) string {
	out, err := play(binary, dir, name, m.Tests)
	switch {
	case err == nil && m.Survives == "":
		return m.Tests + " does not fail"
	case err == nil:
		return ""
	case m.Survives != "":
		return fmt.Sprintf("%s does fail, which Survives denies:\n%s", m.Tests, out)
	case strings.Contains(out, "panic:") || !strings.Contains(out, "--- FAIL: "):
		return fmt.Sprintf("%s ends without a verdict: %v\n%s", m.Tests, err, out)
	default:
		return ""
	}
}

func allTests(tests string, list map[string]Mutant) string {
	all := map[string]bool{tests: true}
	for _, m := range list {
		all[firstOf(m.Tests, tests)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), "|")
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// variable names the mutant that a test binary plays.
const variable = "OUTRIDER_MUTANT"

func play(binary, dir, name, tests string) (string, error) {
	cmd := exec.Command(binary, "-test.run", "^("+tests+")$", "-test.failfast", "-test.timeout", "5m")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variable+"="+name)
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "no tests to run") {
		err = fmt.Errorf("no test has the name %s", tests)
	}
	return string(out), err
}

// build builds the tests of the package in dir with all mutants, and returns the binary.
func build(work, dir string, list map[string]Mutant) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	byFile := map[string]map[string]Mutant{}
	for name, m := range list {
		if byFile[m.File] == nil {
			byFile[m.File] = map[string]Mutant{}
		}
		byFile[m.File][name] = m
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	add := func(file string, text []byte) error {
		copied := filepath.Join(work, file)
		overlay.Replace[filepath.Join(dir, file)] = copied
		return os.WriteFile(copied, text, 0o644)
	}
	pkg := ""
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		source, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", err
		}
		f, err := parse(file, source)
		if err != nil {
			return "", err
		}
		text, err := f.rewrite(byFile[file])
		if err != nil {
			return "", err
		}
		pkg = f.tree.Name.Name
		if err := add(file, text); err != nil {
			return "", err
		}
	}
	if err := add("mutant_of_this_package.go", fmt.Appendf(nil, helper, pkg, variable)); err != nil {
		return "", err
	}
	replace, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	plan, binary := filepath.Join(work, "overlay.json"), filepath.Join(work, "mutants.test")
	if err := os.WriteFile(plan, replace, 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", plan, "-o", binary, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return binary, nil
}

// helper is the file that the overlay adds to the package.
const helper = `package %s

import "os"

var mutantName = os.Getenv(%q)

func mutantIs(name string) bool { return mutantName == name }

func mutantOr[T any](name string, original, replacement T) T {
	if mutantIs(name) {
		return replacement
	}
	return original
}
`
