package hostfile

import (
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAgentsOfEachVersion(t *testing.T) {
	root, source := filepath.Join(t.TempDir(), "opt"), filepath.Join(t.TempDir(), "outrider-agent")
	write(t, source, "one")
	a := Agents{root}
	first, err := a.Install(source)
	if err != nil {
		t.Fatal(err)
	}
	write(t, source, "two")
	second, err := a.Install(source)
	if err != nil || first == second {
		t.Fatalf("two versions are in %s and %s, %v", first, second, err)
	}
	for dir, want := range map[string]string{first: "one", second: "two"} {
		file := filepath.Join(dir, "outrider-agent")
		got, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if err != nil || string(got) != want || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has %q with mode %v, %v; want %q", file, got, info.Mode(), err, want)
		}
	}
	if err := a.Keep([]string{second, ""}); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(second) {
		t.Errorf("kept are %v, %v", entries, err)
	}
}

// An identical copy is not written again, because it may be running and its time says when it was
// installed.
func TestCopyIsWhole(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "bin", "outrider-cni")
	write(t, source, "program")
	if err := Copy(source, target); err == nil {
		t.Error("copied into a directory that is not there")
	}
	if err := os.Mkdir(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	var before os.FileInfo
	for range 2 {
		if err := Copy(source, target); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(target)
		if err != nil || before != nil && !os.SameFile(before, info) {
			t.Errorf("the same copy is written again: %v", err)
		}
		before = info
	}
	// A damaged copy, as after a power failure, is replaced by a new file.
	write(t, target, "prog")
	if err := Copy(source, target); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "program" {
		t.Errorf("the copy is %q, %v", got, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(target)); len(entries) != 1 {
		t.Errorf("beside it: %v", entries)
	}
	if err := Remove(target); err != nil {
		t.Error(err)
	}
	if err := Remove(target); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}
