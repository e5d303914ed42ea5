package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An archive has the command at its root, which can be run, and the same bytes whenever and of
// whichever folder it is made.
func TestArchive(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var archives [][]byte
	for _, age := range []time.Duration{0, time.Hour} {
		dir := t.TempDir()
		for _, name := range []string{"outrider", "LICENSE", "completions/zsh/_outrider"} {
			file := filepath.Join(dir, name)
			when := time.Now().Add(-age)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name), 0o600), os.Chtimes(file, when, when)); err != nil {
				t.Fatal(err)
			}
		}
		to := filepath.Join(t.TempDir(), "a.tar.gz")
		if err := archive(to, dir, at); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, text)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(archives[0]))
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		if !h.ModTime.Equal(at) {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
	}
	if want := map[string]int64{"outrider": 0o755, "LICENSE": 0o644, "completions/zsh/_outrider": 0o644}; !maps.Equal(modes, want) {
		t.Errorf("the archive has %v, want %v", modes, want)
	}
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"an argument": {"linux"},
		"a flag":      {"--os", "linux"},
		"no system":   {"-for", "linux"},
		"an escape":   {"-version", "../1"},
	} {
		var stderr bytes.Buffer
		if status := run(t.Context(), args, io.Discard, &stderr); status != 2 || strings.TrimSpace(stderr.String()) == "" {
			t.Errorf("%s: status %d, %s", name, status, &stderr)
		}
	}
}
