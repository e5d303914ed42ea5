package gate

import (
	"os"
	"path/filepath"
	"testing"
)

// A gate finds an image's command as the container runtime would: in the container's PATH and
// working directory, skipping files that cannot be run.
func TestTheCommandIsFoundAsWithoutAGate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		file := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte("#!/bin/sh\necho "+text+" \"$0\"\n"), mode))
	}
	write("first/notes", "none", 0o644)
	write("second/notes", "second", 0o755)
	write("here", "here", 0o755)
	check(t, os.Symlink("second/notes", filepath.Join(dir, "link")))
	t.Chdir(dir)
	in := func(names ...string) (path string) {
		for _, n := range names {
			path += filepath.Join(dir, n) + ":"
		}
		return path + "/usr/bin:/bin"
	}
	tests := map[string]struct {
		path, command, want string
		code                int
	}{
		"the first in PATH that can be run": {in("first", "second"), "notes", "second " + dir + "/second/notes", 0},
		"a path from the directory":         {in(), "./here", "here ./here", 0},
		"a relative part of PATH":           {"second:/usr/bin:/bin", "notes", "second second/notes", 0},
		"not in the directory without PATH": {in("first"), "here", "", 127},
		"a link":                            {in(), dir + "/link", "second " + dir + "/link", 0},
		"one that cannot be run":            {in(), dir + "/first/notes", "", 126},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", tt.path)
			p := newPod(t)
			code, out := p.output(spec{Name: "app", Command: []string{tt.command}}, "")
			want := tt.want
			if want != "" {
				want += "\n"
			}
			if code != tt.code || out != want {
				t.Errorf("status %d, output %q, want %d, %q\n%s", code, out, tt.code, want, p.all["app"].Log())
			}
		})
	}
}
