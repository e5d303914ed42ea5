// Package mutants checks that tests notice when a rule of the code changes.
//
// A [Mutant] is a source file with one expression or one statement replaced. [Run] builds
// the tests of the calling package once, with all mutants in one binary, and then runs the
// named tests once for each mutant: at least one of them must fail. A mutant that no test
// can detect states the reason in Survives.
//
//	func TestMutants(t *testing.T) {
//		mutants.Run(t, "TestCheck", map[string]mutants.Mutant{
//			"a timeout of zero ends the wait at once": {File: "check.go", From: `e.Timeout > 0`, To: `true`},
//			"the event is not recorded":               {File: "check.go", From: `c.record(ev)`, To: ``},
//		})
//	}
//
// A run tries a sample of the mutants, chosen by their names. The nightly run tries all. So does a run in
// a package with uncommitted changes, because these may affect the mutants or their tests. Every run checks
// that each mutant still matches the source.
//
// The binary is always built without the race detector and without cgo, even if the calling test is built with
// them: the verdicts do not depend on this, and all runs share the entries in the build cache.
//
// The sources on disk are not changed: the compiler gets the changed files as an overlay. Write the
// mutants in the package that they change, and name fast tests, because they run once for each mutant.
package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// A Mutant is one file of the package with From replaced by To.
type Mutant struct {
	File string // path relative to the folder of the calling test; it may be in another package of the module

	// From is the text of a whole expression or statement. It must occur once in the file or, if In is set,
	// once in the text In, which must itself occur once in the file.
	From, In string

	// To replaces From. For an expression it must have the same type. Both expressions are then evaluated,
	// in any order, unless one is recognizable as a condition (a comparison, a logical operator, true,
	// false). So an expression with side effects must be replaced with its whole statement. An empty To
	// deletes a statement.
	To string

	// Tests names the tests that must detect this mutant, separated by "|"; empty: those given to Run.
	Tests string

	// Survives is the reason why no test can detect the mutant. If a test does detect it, Run fails,
	// because the reason is wrong.
	Survives string
}

// share determines the sample: an ordinary run tries about one mutant in this many.
const share = 8

// Run fails for each mutant that the tests, a list of names separated by "|", do not detect. It also fails for a
// mutant that causes a panic, which is not a verdict of a test.
func Run(t *testing.T, tests string, list map[string]Mutant) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Skip("this is a mutant")
	}
	folders := map[string]bool{".": true}
	for _, m := range list {
		folders[filepath.Dir(m.File)] = true
	}
	work, tried, all := t.TempDir(), map[string]Mutant{}, slices.ContainsFunc(slices.Sorted(maps.Keys(folders)), edited)
	for name, m := range list {
		if all || tier.Sample(t.Name()+"/"+name, share) {
			tried[name] = m
		}
	}
	t.Logf("%d of %d mutants; OUTRIDER_NIGHTLY=1 tries all", len(tried), len(list))
	plan, err := overlay(work, ".", list)
	if err != nil {
		t.Fatal(err)
	}
	if len(tried) == 0 {
		return
	}
	binary, err := build(work, ".", plan)
	if err != nil {
		t.Fatal(err)
	}
	if out, status := play(t, binary, ".", "", allTests(tests, tried)); status != 0 {
		t.Fatalf("without any mutant: exit status %d\n%s", status, out)
	}
	for name, m := range tried {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.Tests = firstOf(m.Tests, tests)
			if problem := judge(t, binary, ".", name, m); problem != "" {
				t.Errorf("%s: with %q instead of %q, %s", m.File, m.To, m.From, problem)
			}
		})
	}
}

// edited reports whether a folder has uncommitted changes. Outside a repository it returns false.
func edited(dir string) bool {
	cmd := exec.Command("git", "status", "--porcelain", "--", ".")
	cmd.Dir = dir
	out, err := cmd.Output()
	return err == nil && len(out) > 0
}

// judge runs the tests with a mutant, and describes the problem if they do not detect it. It returns "" if they do,
// or if the mutant has a reason to survive and does.
func judge(t *testing.T, binary, dir, name string, m Mutant) string {
	out, status := play(t, binary, dir, name, m.Tests)
	switch {
	case status == 0 && strings.Contains(out, "no tests to run"):
		return "no test has the name " + m.Tests
	case status == 0 && m.Survives == "":
		return m.Tests + " does not fail"
	case status == 0:
		return ""
	case m.Survives != "":
		return fmt.Sprintf("%s does fail, which Survives denies:\n%s", m.Tests, out)
	case strings.Contains("\n"+out, "\npanic:") || !strings.Contains(out, "--- FAIL: "):
		return fmt.Sprintf("%s ends without a verdict: exit status %d\n%s", m.Tests, status, out)
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

// variable is the environment variable that selects the mutant in a test binary.
const variable = "OUTRIDER_MUTANT"

// play runs tests of the binary with a mutant, and returns their output and exit status.
func play(t *testing.T, binary, dir, name, tests string) (string, int) {
	cmd := exec.Command(binary, "-test.run", "^("+tests+")$", "-test.failfast", "-test.timeout", "5m")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variable+"="+name)
	p := process.Start(t, cmd, process.Options{})
	<-p.Done() // this wait needs no time limit, because the process has one
	return p.Log(), p.Exit()
}

// overlay writes the sources of the package in dir with all mutants, and returns the overlay file
// for the compiler.
func overlay(work, dir string, list map[string]Mutant) (string, error) {
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
	copies := 0
	add := func(path string, text []byte) error {
		copied := filepath.Join(work, fmt.Sprint(copies, ".go"))
		overlay.Replace[path], copies = copied, copies+1
		return os.WriteFile(copied, text, 0o644)
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		path := filepath.Join(dir, file)
		source, err := os.ReadFile(path)
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
		choosing := filepath.Join(filepath.Dir(path), "mutant_of_this_package.go")
		if err := errors.Join(add(path, text), add(choosing, fmt.Appendf(nil, helper, f.tree.Name.Name, variable))); err != nil {
			return "", err
		}
	}
	replace, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	plan := filepath.Join(work, "overlay.json")
	return plan, os.WriteFile(plan, replace, 0o644)
}

// build builds the tests of the package in dir with an overlay file, and returns the binary's path.
func build(work, dir, plan string) (string, error) {
	binary := filepath.Join(work, "mutants.test")
	cmd := exec.Command("go", "test", "-c", "-overlay", plan, "-o", binary, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the mutants: %w\n%s", err, out)
	}
	return binary, nil
}

// helper is a source file that the overlay adds to each package with mutants. Its functions select the mutant.
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
