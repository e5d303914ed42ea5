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

// in writes a module of its own and reads it as a tree.
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

// A rule for tests finds the lines of its folder with "bad", and no others.
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
-- cmd/outrider-agent/main.go --
package main

import "os"

func main() { println(os.Getenv("HOME")) }
`)
	old := measures
	t.Cleanup(func() { measures = old })
	measures = []measure{
		{"environment", 0, environment},
		{"words", 1, words(`(?i)\bnobody\b`)},
		{"linked", 1, linked},
	}
	var stdout, stderr bytes.Buffer
	if status := run(&stdout, &stderr); status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	if want := "\nhouse: environment: 1, and the limit is 0\n  internal/a/a.go:6\n"; stderr.String() != want {
		t.Errorf("stderr is %q, want %q", stderr.String(), want)
	}
	if !strings.Contains(stdout.String(), "words        1    1\n") {
		t.Errorf("the table has no line for a measure within its limit:\n%s", stdout.String())
	}
}
