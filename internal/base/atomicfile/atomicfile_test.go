package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "file")
	fresh := filepath.Join(filepath.Dir(path), ".file.new")
	victim := filepath.Join(t.TempDir(), "victim")
	for name, put := range map[string]func() error{ // any order: each case prepares its own files
		"nothing":       func() error { return nil },
		"an unfinished": func() error { return os.WriteFile(fresh, []byte("longer than the new content"), 0o400) },
		"a link":        func() error { return os.Symlink(victim, fresh) },
		"a pipe":        func() error { return syscall.Mkfifo(fresh, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := put(); err != nil {
				t.Fatal(err)
			}
			if err := Write(path, []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			info, _ := os.Stat(path)
			if string(got) != name || info.Mode() != 0o644 || err != nil {
				t.Errorf("%q with mode %v, %v", got, info.Mode(), err)
			}
			if _, err := os.Lstat(fresh); err == nil {
				t.Errorf("%s is left", fresh)
			}
		})
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("the link's file was written")
	}
}

// A reader that opened the file before it was replaced still reads the whole old content.
func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if n, err := f.Read(b); string(b[:n]) != "old" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

func TestNothingIsLeftOfAFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil { // a rename onto a directory that is not empty fails
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err == nil {
		t.Error("no error")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
}
