package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A mount imitates a ConfigMap that the kubelet mounts: the files are links through the link ..data, and a change
// replaces ..data by a rename.
type mount struct {
	t   *testing.T
	dir string
	n   int
}

func (m *mount) put(files map[string]string) {
	m.t.Helper()
	m.n++
	version := fmt.Sprintf("..2026_%d", m.n)
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(m.dir, version), 0o755))
	for name, text := range files { // any order: the names differ
		must(os.WriteFile(filepath.Join(m.dir, version, name), []byte(text), 0o644))
		if link := filepath.Join(m.dir, name); m.n == 1 {
			must(os.Symlink(filepath.Join("..data", name), link))
		}
	}
	old, _ := os.Readlink(filepath.Join(m.dir, "..data"))
	must(os.Symlink(version, filepath.Join(m.dir, "..data_tmp")))
	must(os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if old != "" {
		must(os.RemoveAll(filepath.Join(m.dir, old)))
	}
}

func TestAMountedConfigMap(t *testing.T) {
	tests := map[string]struct {
		provider func(dir string) (*File, error)
		want     []string
	}{
		"one file":   {func(dir string) (*File, error) { return NewFile(dir + "/settings.json") }, []string{`{"N":1}`, `{"N":2}`}},
		"the folder": {NewFolder, []string{`{"level":"info","settings.json":"{\"N\":1}"}` + "\n", `{"level":"info","settings.json":"{\"N\":2}"}` + "\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := &mount{t: t, dir: t.TempDir()}
			f, err := tt.provider(m.dir)
			if err != nil {
				t.Fatal(err)
			}
			if name == "one file" {
				if _, err := f.Fetch(t.Context(), Request{MaxSize: 100}); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("before it exists: %v", err)
				}
			}
			m.put(map[string]string{"settings.json": `{"N":1}`, "level": "info"})
			first, err := f.Fetch(t.Context(), Request{MaxSize: 100})
			if err != nil || string(first.Data) != tt.want[0] {
				t.Fatalf("%q, %v; want %q", first.Data, err, tt.want[0])
			}
			if _, err := f.Fetch(t.Context(), Request{Version: first.Version, MaxSize: 100}); !errors.Is(err, ErrUnchanged) {
				t.Errorf("again: %v", err)
			}
			if _, err := f.Fetch(t.Context(), Request{MaxSize: 5}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("of at most 5 bytes: %v", err)
			}
			// The change happens while the fetch waits, in virtual time.
			synctest.Test(t, func(t *testing.T) {
				go func() {
					time.Sleep(90 * time.Second)
					m.put(map[string]string{"settings.json": `{"N":2}`, "level": "info"})
				}()
				began := time.Now()
				if _, err := f.Fetch(t.Context(), Request{Version: first.Version, Wait: time.Minute, MaxSize: 100}); !errors.Is(err, ErrUnchanged) || time.Since(began) != time.Minute {
					t.Errorf("held for a minute: %v after %v", err, time.Since(began))
				}
				second, err := f.Fetch(t.Context(), Request{Version: first.Version, Wait: time.Minute, MaxSize: 100})
				if err != nil || string(second.Data) != tt.want[1] {
					t.Errorf("%q, %v; want %q", second.Data, err, tt.want[1])
				}
				if took := time.Since(began); took < 90*time.Second || took > 92*time.Second {
					t.Errorf("the change was seen after %v; it was after 90s", took)
				}
			})
		})
	}
}

// NewFile, NewFolder and Fetch report paths and files that cannot be documents.
func TestFilesThatAreNoDocuments(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewFile(dir); err == nil || !strings.Contains(err.Error(), "use NewFolder") {
		t.Errorf("a folder as a file: %v", err)
	}
	if _, err := NewFile(""); err == nil {
		t.Error("an empty path is taken")
	}
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte{0xff}, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFolder(path); err == nil || !strings.Contains(err.Error(), "use NewFile") {
		t.Errorf("a file as a folder: %v", err)
	}
	f, err := NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fetch(context.Background(), Request{MaxSize: 100}); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("bytes as text: %v", err)
	}
}
