package xds

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var shop = Workload{"store", "sa", "shop"}

func TestMemoryForgetsWhatWasAskedForLongestAgo(t *testing.T) {
	m := NewMemory(MemoryLimits{Workloads: 2, Names: 3})
	m.Store(shop, []string{"a", "b", "c"})
	m.Store(shop, []string{"a", "d"}) // a is new again; b goes
	if diff := cmp.Diff([]string{"a", "c", "d"}, m.Load(shop)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	m.Store(Workload{}, []string{"a", "a"})
	m.Store(Workload{}, []string{"a"})
	if diff := cmp.Diff([]string{"a"}, m.Load(Workload{})); diff != "" {
		t.Errorf("a name asked for again (-want +got):\n%s", diff)
	}
	m = NewMemory(MemoryLimits{Workloads: 2})
	m.Store(shop, []string{"a", "c", "d"})
	second, third := Workload{Name: "2"}, Workload{Name: "3"}
	m.Store(second, []string{"x"})
	m.Load(shop)
	m.Store(third, []string{"y"})
	if got := m.Load(second); got != nil {
		t.Errorf("the workload that asked longest ago is still known: %q", got)
	}
	if len(m.Load(shop)) != 3 || len(m.Load(third)) != 1 {
		t.Error("another one was forgotten")
	}
}

func TestMemoryDirOutlivesTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "memory")
	odd := Workload{"../..", "a/b,c", strings.Repeat("é", 3)}
	m := mustMemoryDir(t, dir, MemoryLimits{}, nil)
	m.Store(shop, []string{"od|10.64.0.6:9000", "b"})
	m.Store(odd, []string{"x"})
	m.Store(Workload{Name: strings.Repeat("n", 300)}, []string{"too long for a file"})
	m.Close()
	m = mustMemoryDir(t, dir, MemoryLimits{}, nil)
	defer m.Close()
	if diff := cmp.Diff([]string{"b", "od|10.64.0.6:9000"}, m.Load(shop)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"x"}, m.Load(odd)); diff != "" {
		t.Errorf("names of a workload with an odd name (-want +got):\n%s", diff)
	}
}

func TestMemoryDirSurvivesBadFiles(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"store,sa,shop.json":      `{"clusters":["a"]}`,
		"store,sa,broken.json":    `{"clusters":["a"`,
		"store,sa,other.json":     `["a"]`,
		"store,sa.json":           `{}`,
		"a,b,%zz.json":            `{}`,
		"store,sa,large.json":     strings.Repeat(" ", maxMemoryFile+1),
		"store,sa,aside.json.new": `{"clusters":["z"]}`,
		"README":                  "mine",
		"store,sa,nothing.json":   `{}`,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "store,sa,dir.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	m := mustMemoryDir(t, dir, MemoryLimits{}, slog.New(slog.NewTextHandler(&log, nil)))
	broken := Workload{"store", "sa", "broken"}
	m.Store(broken, []string{"again"})
	m.Close()
	if got := m.Load(shop); len(got) != 1 {
		t.Errorf("the good file: %q", got)
	}
	for _, name := range []string{"broken", "other", "store,sa.json", "%zz", "large", "dir.json"} {
		if !strings.Contains(log.String(), name) {
			t.Errorf("nothing in the log about %s:\n%s", name, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 6 {
		t.Errorf("%d lines in the log; want 6:\n%s", n, log.String())
	}
	m = mustMemoryDir(t, dir, MemoryLimits{}, nil)
	defer m.Close()
	if diff := cmp.Diff([]string{"again"}, m.Load(broken)); diff != "" {
		t.Errorf("the broken file was not replaced (-want +got):\n%s", diff)
	}
}

// Two control planes share a directory: each knows what the other was asked for, and
// neither takes that away.
func TestMemoryDirIsShared(t *testing.T) {
	dir := t.TempDir()
	a, b := mustMemoryDir(t, dir, MemoryLimits{Names: 3}, nil), mustMemoryDir(t, dir, MemoryLimits{Names: 3}, nil)
	a.Store(shop, []string{"one", "two"})
	a.Close()
	if diff := cmp.Diff([]string{"one", "two"}, b.Load(shop)); diff != "" {
		t.Errorf("what the other one was asked for (-want +got):\n%s", diff)
	}
	c := mustMemoryDir(t, dir, MemoryLimits{Names: 3}, nil)
	b.Store(shop, []string{"three"})
	b.Close()
	c.Store(shop, []string{"four"})
	c.Close()
	// There is room for three: the oldest goes.
	if diff := cmp.Diff([]string{"four", "three", "two"}, mustMemoryDir(t, dir, MemoryLimits{}, nil).Load(shop)); diff != "" {
		t.Errorf("what both were asked for (-want +got):\n%s", diff)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new*")); len(left) > 0 || err != nil {
		t.Errorf("files left: %q, %v", left, err)
	}
}

func TestMemoryDirIsBounded(t *testing.T) {
	dir := t.TempDir()
	m := mustMemoryDir(t, dir, MemoryLimits{Workloads: 3}, nil)
	for i := range 10 {
		m.Store(Workload{Name: fmt.Sprint(i)}, []string{"a"})
	}
	m.Close()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, %v; want 3", len(files), err)
	}
	m = mustMemoryDir(t, dir, MemoryLimits{Workloads: 1}, nil)
	m.Close()
	if files, err = os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%d files after a restart with a lower bound, %v; want 1", len(files), err)
	}
}

func mustMemoryDir(t *testing.T, dir string, l MemoryLimits, log *slog.Logger) *MemoryDir {
	t.Helper()
	m, err := NewMemoryDir(dir, l, log)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
