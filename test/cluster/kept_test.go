package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestBuildsAreKeptForOtherCheckouts(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	checkout := func() program {
		dir := filepath.Join(t.TempDir(), "v1.34")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return program{output: filepath.Join(dir, "kube")}
	}
	// wants takes a build in a new checkout. An empty text: there is none.
	wants := func(inputs, text string) {
		t.Helper()
		p := checkout()
		taken := p.kept(inputs).take(p.output)
		got, _ := os.ReadFile(p.output)
		if taken != (text != "") || string(got) != text {
			t.Errorf("a build of %q: %t, %q; want %q", inputs, taken, got, text)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.output), ".new-*")); left != nil {
			t.Errorf("left in the checkout: %v", left)
		}
	}
	put := func(inputs, text string) {
		t.Helper()
		p := checkout()
		write(p.output, text)
		if err := p.kept(inputs).put(p.output); err != nil {
			t.Error(err)
		}
	}
	wants("a", "")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { put("a", "program a") })
	}
	both.Wait()
	wants("a", "program a")
	wants("b", "")
	files, _ := filepath.Glob(filepath.Join(checkout().kept("a").dir, "*"))
	if len(files) != 1 {
		t.Fatalf("two that put the same have %v", files)
	}
	write(files[0], "program")
	wants("a", "") // cut short
	if _, err := os.Stat(files[0]); err == nil {
		t.Error("a broken build stays")
	}
	for i := range keptBuilds + 1 {
		inputs := fmt.Sprint(i)
		put(inputs, "program "+inputs)
		wants("0", "program 0")          // which is in use
		time.Sleep(2 * time.Millisecond) // the clock of files is not finer on each machine
	}
	wants("1", "")
	wants("2", "program 2")
}
