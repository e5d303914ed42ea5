package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
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
	at := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	for command, to := range map[string]string{"outrider": "a.tar.gz", "outrider.exe": "a.zip"} {
		t.Run(to, func(t *testing.T) {
			var archives [][]byte
			for _, age := range []time.Duration{0, time.Hour} {
				dir := t.TempDir()
				for _, name := range []string{command, "LICENSE", "completions/zsh/_outrider"} {
					file := filepath.Join(dir, name)
					when := time.Now().Add(-age)
					if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name), 0o600), os.Chtimes(file, when, when)); err != nil {
						t.Fatal(err)
					}
				}
				to := filepath.Join(t.TempDir(), to)
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
			want := map[string]file{command: {0o755, at, command}, "LICENSE": {0o644, at, "LICENSE"}, "completions/zsh/_outrider": {0o644, at, "completions/zsh/_outrider"}}
			if got := files(t, to, archives[0]); !maps.Equal(got, want) {
				t.Errorf("the archive has %v, want %v", got, want)
			}
		})
	}
}

type file struct {
	mode fs.FileMode
	at   time.Time
	text string
}

// files returns the files of an archive, by their names.
func files(t *testing.T, name string, raw []byte) map[string]file {
	t.Helper()
	out := map[string]file{}
	add := func(name string, info fs.FileInfo, content io.Reader) {
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = file{info.Mode(), info.ModTime().UTC(), string(text)}
	}
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			content, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.FileInfo(), content)
		}
		return out
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, h.FileInfo(), r)
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
