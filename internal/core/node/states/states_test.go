package states

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

func newDir(t *testing.T) *Dir {
	t.Helper()
	ns.RequireRoot(t)
	d, err := New(filepath.Join(t.TempDir(), "pods"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Keep(nil); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestStatesOfAPod(t *testing.T) {
	d := newDir(t)
	states, own, err := d.Container("4f00", "app")
	if err != nil {
		t.Fatal(err)
	}
	if got := []os.FileMode{mode(t, d.root), mode(t, states), mode(t, own)}; got[0] != 0o700 || got[1] != 0o755 || got[2] != 0o777 {
		t.Errorf("modes are %o, want 700 755 777", got)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(own, &fs); err != nil || fs.Flags&unix.ST_NOEXEC == 0 || fs.Flags&unix.ST_NOSUID == 0 || fs.Flags&unix.ST_NODEV == 0 {
		t.Errorf("flags %x, %v; want noexec, nosuid and nodev", fs.Flags, err)
	}
	if err := os.WriteFile(filepath.Join(own, "state"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	again, other, err := d.Container("4f00", "proxy") // an existing file system is not mounted again
	if _, gone := os.Stat(filepath.Join(again, "app", "state")); err != nil || gone != nil || other != filepath.Join(states, "proxy") {
		t.Errorf("the second container gets %s, %v; the first one's state: %v", other, err, gone)
	}
	if err := d.Remove("4f00"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(states); !os.IsNotExist(err) {
		t.Errorf("after the end of the sandbox: %v", err)
	}
	if _, own, err := d.Container("4f00", "app"); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(filepath.Join(own, "state")); !os.IsNotExist(err) {
		t.Errorf("the state of before is there: %v", err)
	}
}

func TestQuotas(t *testing.T) {
	d := newDir(t)
	_, own, err := d.Container("a", "app")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "large"), make([]byte, 2<<20), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2 MiB: %v, want ENOSPC", err)
	}
	for i := range 2000 {
		if err = os.Mkdir(filepath.Join(own, strconv.Itoa(i)), 0o755); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("2000 directories: %v, want ENOSPC", err)
	}
	if _, own, err := d.Container("b", "app"); err != nil {
		t.Error(err)
	} else if err := os.WriteFile(filepath.Join(own, "state"), []byte("x"), 0o644); err != nil {
		t.Errorf("another pod: %v", err)
	}
}

// If a process is killed between its steps, or a node fails, directories with mounts, directories without mounts
// and files may remain.
func TestKeep(t *testing.T) {
	d := newDir(t)
	for _, s := range []string{"keep", "ended"} {
		if _, _, err := d.Container(s, "app"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(d.root, "empty"), 0o755), os.WriteFile(filepath.Join(d.root, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep([]string{"keep"}); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(d.root)
	if err != nil || len(entries) != 1 || entries[0].Name() != "keep" {
		t.Errorf("there are %v, %v; want the one that was kept", entries, err)
	}
}

func TestNamesArePathsOfNoOther(t *testing.T) {
	d := newDir(t)
	for _, n := range [][2]string{{"..", "app"}, {"a/b", "app"}, {"", "app"}, {"a", ".."}, {"a", "b/c"}, {"a", ""}, {"a", "A"}} {
		if states, own, err := d.Container(n[0], n[1]); err == nil {
			t.Errorf("%q has %s and %s", n, states, own)
		}
	}
	if err := d.Remove("../pods"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.root); err != nil {
		t.Error(err)
	}
}
