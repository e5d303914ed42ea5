package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// in writes a module with files, given in txtar format, to a temporary folder and returns its tree.
func in(t *testing.T, files string) *tree {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte("-- go.mod --\nmodule example.test\n\ngo 1.26\n" + files)).Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	t.Chdir(dir)
	tree, err := readTree(".")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestAFunctionHasABranchForEachDecision(t *testing.T) {
	tree := in(t, `-- startup/a.go --
package startup

func few(a, b bool) int {
	if a && b {
		return 1
	}
	for range 3 {
	}
	return 2
}

func many(n int) int {
	switch n {
	case 1: return 1
	case 2: return 1
	case 3: return 1
	case 4: return 1
	case 5: return 1
	case 6: return 1
	case 7: return 1
	case 8: return 1
	case 9: return 1
	case 10: return 1
	case 11: return 1
	case 12: return 1
	case 13: return 1
	case 14: return 1
	case 15: return 1
	default: return 0
	}
}

// excused is a table.
//
// complexity: one case a number.
func excused(n int) int {
	switch n {
	case 1, 2, 3: if n > 1 || n > 2 || n > 3 || n > 4 || n > 5 || n > 6 || n > 7 || n > 8 || n > 9 || n > 10 || n > 11 || n > 12 || n > 13 || n > 14 { return 1 }
	}
	return 0
}
`)
	r, err := branchy(tree)
	if err != nil {
		t.Fatal(err)
	}
	if want := "startup/a.go:12 many 16"; strings.Join(r.places, "\n") != want {
		t.Errorf("functions over 15 branches: %q, want %q", r.places, want)
	}
}

func TestTheOrderOfAMapShows(t *testing.T) {
	tree := in(t, `-- a.go --
package a

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
)

func returnsOne(m map[string]int) error {
	for k := range m { // shows
		if k == "x" || k == "y" {
			return errors.New(k)
		}
	}
	return nil
}

func prints(m map[string]int) {
	for k, v := range m { // shows
		fmt.Fprintln(os.Stderr, k, v)
	}
}

func collects(m map[string]int) []string {
	var out []string
	for k := range maps.Keys(m) { // shows
		out = append(out, k)
	}
	return out
}

func collectsAndSorts(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func sortsFirst(m map[string]int) error {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		return errors.New(k)
	}
	return nil
}

func decides(m map[string]int) bool {
	for _, v := range m {
		if v > 1 {
			return true
		}
	}
	return false
}

func groups(m map[string]int) map[int][]string {
	out := map[int][]string{}
	for k := range slices.Values(collectsAndSorts(m)) {
		out[0] = append(out[0], fmt.Sprint(k))
	}
	return out
}

func excuses(m map[string]int) error {
	// any order: the map has one key.
	for k := range m {
		return errors.New(k)
	}
	return nil
}
`)
	r, err := mapOrder(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.places {
		_, in, _ := strings.Cut(p, " in ")
		got = append(got, in)
	}
	if want := "returnsOne prints collects"; strings.Join(got, " ") != want {
		t.Errorf("ranges in which the order shows: %q, want %q", got, want)
	}
}

// Each rule of tests.go finds exactly the lines with "bad" in its folder of testdata/rules.txtar.
func TestRulesForTests(t *testing.T) {
	text, err := os.ReadFile("testdata/rules.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tests := in(t, string(text))
	for name, rule := range map[string]func(*tree) (result, error){
		"ports": inTests(file.runs, "closed port", closedPorts), "limits": inTests(file.judges, "time limit", upperBounds), "orphans": inTests(file.runs, "outlives", orphans),
	} {
		r, err := rule(tests)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, f := range tests.files {
			for i, line := range strings.Split(f.text, "\n") {
				if f.below(name) && strings.Contains(line, "// bad") {
					want = append(want, f.path+":"+itoa(i+1))
				}
			}
		}
		r.places = slices.DeleteFunc(r.places, func(p string) bool { return !strings.HasPrefix(p, name+"/") })
		slices.Sort(r.places)
		slices.Sort(want)
		if !slices.Equal(r.places, want) {
			t.Errorf("%s: found %q, want %q", name, r.places, want)
		}
	}
}

func TestAMeasureOverItsLimitFailsAndNamesThePlace(t *testing.T) {
	in(t, `-- internal/a/a.go --
package a

import "os"

// Nobody reads this.
var Home = os.Getenv("HOME")
-- features.txt --
all (core): Nothing would be left.
	cmd/ internal/ features.txt go.mod
-- build/house/budgets.txt --
# Of this test.
0 environment
2 words
1 linked
-- cmd/outrider-agent/main.go --
package main

import "os"

func main() { println(os.Getenv("HOME")) }
`)
	old := measures
	t.Cleanup(func() { measures = old })
	measures = []measure{
		{"environment", environment, false},
		{"words", words(`(?i)\bnobody\b`), false},
		{"linked", linked("outrider-agent", true), false},
	}
	var stdout, stderr bytes.Buffer
	if status := run(&stdout, &stderr); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	if text, err := os.ReadFile(budgetsFile); err != nil || !strings.Contains(string(text), "\n1 words\n1 linked\n") {
		t.Errorf("the limits that are not reached are not lowered: %v\n%s", err, text)
	}
	if want := "features.txt: build/house/budgets.txt is of no feature: add its path to one, or a feature with the sentence that says what a user would lose without it\n\nhouse: environment: 1, and the limit is 0\n  internal/a/a.go:6\n"; stderr.String() != want {
		t.Errorf("stderr is %q, want %q", stderr.String(), want)
	}
	if !strings.Contains(stdout.String(), "words        1    2\n") {
		t.Errorf("the table has no line for a measure within its limit:\n%s", stdout.String())
	}
}

func TestEachFileIsOfTheFeatureWithTheLongestPath(t *testing.T) {
	tree := in(t, "-- a/x.go --\npackage a\n\n-- a/b/x_test.go --\npackage b\n-- a/b/testdata/x.txt --\n1\n2\n3\n-- c.md --\n1\n")
	all, err := parseFeatures("# A comment.\n\nfirst (core): One would lose a.\n\ta/ c.md\nsecond (lab): One would lose b.\n\ta/b/ d/\n")
	if err != nil {
		t.Fatal(err)
	}
	homeless, empty := count(tree, all)
	if !slices.Equal(homeless, []string{"go.mod"}) || !slices.Equal(empty, []string{"d/"}) {
		t.Errorf("files of no feature: %q, paths without files: %q", homeless, empty)
	}
	if f := all[0]; f.code != 2 || f.tests+f.testdata != 0 || f.written != 1 {
		t.Errorf("first: %+v", f)
	}
	if f := all[1]; f.code+f.written != 0 || f.tests != 1 || f.testdata != 3 {
		t.Errorf("second: %+v", f)
	}
	for _, bad := range []string{"", "x: y.\n", "x (attic): y.\n", "x (core): y\n", "\ta/\n"} {
		if _, err := parseFeatures(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestFieldsThatMethodsWriteInManyFiles(t *testing.T) {
	tree := in(t, `-- internal/core/pod/a.go --
package pod

type wide struct {
	n    int
	part part
	list []int
	free int
}

type part struct{ n int }

func (w *wide) one() { w.n = 1; w.part.n++; fresh := wide{}; fresh.free = 1 }

func writeAnother(w *wide) { w.free = 2 }
-- internal/core/pod/b.go --
package pod

func (w *wide) two() { w.list[0], w.part.n = 2, 2 }
-- internal/core/pod/c.go --
package pod

func (w *wide) three() { clear(w.list); _ = w.n }
`)
	all, err := corridors(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		got = append(got, c.name+" "+itoa(len(c.files)))
	}
	if want := []string{"internal/core/pod.wide 3", "internal/core/pod.part 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r, err := throughFiles(true)(tree)
	if err != nil || r.now != 1 {
		t.Errorf("%d through more than two files, want 1: %v", r.now, err)
	}
}

// A limit may be raised only in a commit that changes nothing else and has a body.
func TestRaises(t *testing.T) {
	tree := in(t, "-- build/house/budgets.txt --\n1 copies\n")
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	commit := func(budget, other, message string) {
		t.Helper()
		for file, text := range map[string]string{budgetsFile: budget, "other": other} { // any order: the files are independent
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		git("add", "-A")
		git("commit", "-qm", message)
	}
	commit("1 copies\n", "a", "first")
	commit("0 copies\n", "b", "lowered")
	commit("2 copies\n", "b", "raised alone\n\nUsers would miss a copy.")
	commit("3 copies\n", "c", "raised with something else\n\nUsers would miss a copy.")
	commit("4 copies\n", "c", "raised without a word")
	commit("4 copies\n1 words\n", "d", "a measure that is new")
	r, err := raises(tree)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(r.places)
	if all := strings.Join(r.places, "\n"); len(r.places) != 2 || !strings.Contains(all, " raised without a word") || !strings.Contains(all, " raised with something else") {
		t.Errorf("raises: %q", r.places)
	}
}

func TestHelpNamesSubcommandsAndFlags(t *testing.T) {
	text := "does it\n\nAvailable Commands:\n  check        find out\n  help         Help\n\nFlags:\n  -h, --help      help\n      --version   print\n"
	if m := subcommand.FindAllStringSubmatch(text, -1); len(m) != 2 || m[0][1] != "check" {
		t.Errorf("subcommands: %q", m)
	}
	if n := len(flagLine.FindAllString(text, -1)); n != 2 {
		t.Errorf("%d flags, want 2", n)
	}
}

func TestSentencesThatMakeAReaderStop(t *testing.T) {
	tree := in(t, "-- a.go --\npackage a\n\n// One is what two needs.\nvar one int\n\n// What two needs.\nvar two int\n\n// Three counts what two needs.\nvar three int // likewise\n\n// What is four?\nvar four int\n"+
		"-- a.md --\n# A\n\nWhat is shown is right.\n\nThe names are those of\nIstio.\n")
	r, err := stumbles(tree)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a.go:3 is what", "a.go:6 What two needs.", "a.go:10 likewise", "a.md:5 are those of"}; !slices.Equal(r.places, want) {
		t.Errorf("%q, want %q", r.places, want)
	}
}
