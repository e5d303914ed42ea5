package wire

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// watched returns a channel that receives the file's content after each change. The poll interval is too
// long to cause the calls.
func watched(t *testing.T, path string) chan string {
	t.Helper()
	out := make(chan string, 100)
	stop := WatchFiles(time.Hour, func() {
		raw, _ := os.ReadFile(path)
		out <- string(raw)
	}, path, "")
	t.Cleanup(stop)
	return out
}

func await(t *testing.T, from chan string, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case got := <-from:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("no call for %q", want)
		}
	}
}

func TestChangesOfFilesAreSeen(t *testing.T) {
	t.Run("a file written in place", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		changes := watched(t, file)
		write(t, file, "one")
		await(t, changes, "one")
		write(t, file, "two")
		await(t, changes, "two")
	})
	t.Run("a file replaced by rename, and removed", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "one")
		changes := watched(t, file)
		write(t, file+".new", "two")
		rename(t, file+".new", file)
		await(t, changes, "two")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		await(t, changes, "")
	})
	t.Run("a projected volume, twice", func(t *testing.T) {
		dir := t.TempDir()
		swap := func(name, content string) {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name, "token"), content)
			if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
				t.Fatal(err)
			}
			rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		}
		swap("..1", "one")
		file := filepath.Join(dir, "token")
		if err := os.Symlink("..data/token", file); err != nil {
			t.Fatal(err)
		}
		changes := watched(t, file)
		swap("..2", "two")
		await(t, changes, "two")
		swap("..3", "three")
		await(t, changes, "three")
	})
	t.Run("a link to a file elsewhere", func(t *testing.T) {
		dir, other := t.TempDir(), t.TempDir()
		write(t, filepath.Join(other, "real"), "one")
		if err := os.Symlink(filepath.Join(other, "real"), filepath.Join(dir, "token")); err != nil {
			t.Fatal(err)
		}
		changes := watched(t, filepath.Join(dir, "token"))
		write(t, filepath.Join(other, "real"), "two")
		await(t, changes, "two")
	})
}

func TestADirectoryThatComesLaterIsPolledFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	file := filepath.Join(dir, "token")
	changes := make(chan string, 1000)
	t.Cleanup(WatchFiles(10*time.Millisecond, func() {
		raw, _ := os.ReadFile(file)
		select {
		case changes <- string(raw):
		default:
		}
	}, file))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, "one")
	await(t, changes, "one")
}

func TestWithoutInotifyFilesArePolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := &watcher{paths: []string{"/x"}, poll: 10 * time.Second, changed: func() { calls++ }, stop: make(chan struct{})}
		go w.run(w.add())
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if calls != 3 {
			t.Errorf("%d calls in 35s, want one each 10s", calls)
		}
		close(w.stop)
		time.Sleep(time.Minute)
		if calls != 3 {
			t.Error("called after the stop")
		}
	})
}

func TestWithoutFilesNothingIsWatched(t *testing.T) {
	WatchFiles(time.Nanosecond, func() { t.Error("called") }, "", "")()
}
