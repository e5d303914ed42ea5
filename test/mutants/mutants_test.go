package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var dir = filepath.Join("testdata", "clamp")

func TestJudge(t *testing.T) {
	const unlike = "both ways return the same"
	tests := map[string]struct {
		mutant Mutant
		want   string // substring of the reported problem
	}{
		"a value":                      {Mutant{From: `max(n, b.low)`, To: `n`}, ""},
		"a value within a value":       {Mutant{From: `min(max(n, b.low), b.high)`, To: `max(n, b.low)`}, ""},
		"the same value once more":     {Mutant{From: `max(n, b.low)`, To: `b.low`}, ""},
		"a condition before a pointer": {Mutant{From: `b.low > b.high`, To: `false`}, ""},
		"a condition that panics":      {Mutant{From: `b == nil`, To: `false`}, "without a verdict"},
		"a statement":                  {Mutant{From: `calls++`, To: ``}, ""},
		"a return":                     {Mutant{From: `n`, In: "return n\n", To: `n + 1`}, ""},
		"a survivor":                   {Mutant{From: `b.high == b.low`, To: `false`}, "does not fail"},
		"a survivor with its reason":   {Mutant{From: `b.high == b.low`, To: `false`, Survives: unlike}, ""},
		"a reason that is wrong":       {Mutant{From: `calls++`, To: `calls += 2`, Survives: unlike}, "which Survives denies"},
		"a test that does not exist":   {Mutant{From: `calls++`, To: ``, Tests: "TestNone"}, "no test has the name"},
	}
	list := map[string]Mutant{}
	for name, tt := range tests {
		tt.mutant.File, tt.mutant.Tests = "clamp.go", firstOf(tt.mutant.Tests, "TestClamp")
		list[name] = tt.mutant
	}
	binary, err := built(t, list)
	if err != nil {
		t.Fatal(err)
	}
	if out, status := play(t, binary, dir, "", "TestClamp"); status != 0 {
		t.Fatalf("without any mutant: exit status %d\n%s", status, out)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := judge(t, binary, dir, name, list[name])
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the problem is %q, want %q", got, tt.want)
			}
		})
	}
}

func built(t *testing.T, list map[string]Mutant) (binary string, err error) {
	work := t.TempDir()
	plan, err := overlay(work, dir, list)
	if err != nil {
		return "", err
	}
	return build(work, dir, plan)
}

func TestMutantsThatDoNotFitAreErrors(t *testing.T) {
	for want, m := range map[string]Mutant{
		"4 times":                           {From: `b.low`},
		"0 times,":                          {From: `b.low`, In: `nothing like this`},
		"0 times as":                        {From: `n, b.low`},
		"no such file":                      {File: "none.go", From: `n`},
		"building the mutants":              {From: `calls++`, To: `calls--- 1`},
		`mutant "m": clamp.go has "absent"`: {From: `absent`},
	} {
		if m.File == "" {
			m.File = "clamp.go"
		}
		if _, err := built(t, map[string]Mutant{"m": m}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

func TestEdited(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.go")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	write("package a\n")
	if edited(dir) {
		t.Error("a folder outside a repository is edited")
	}
	git("init", "-q")
	if !edited(dir) {
		t.Error("a new file is no edit")
	}
	git("add", ".")
	git("commit", "-q", "-m", "a")
	if edited(dir) {
		t.Error("a committed folder is edited")
	}
	write("package b\n")
	if !edited(dir) {
		t.Error("a changed file is no edit")
	}
}
