package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// The command of opener receives the address unchanged as one argument, and Browse does not wait for the command.
func TestBrowse(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "arguments")
	// The opener blocks on the pipe until the test reads it, so it ends after Browse has returned.
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + pipe + "\n"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(dir, opener(runtime.GOOS)[0]), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	const address = "http://127.0.0.1:40123/debug/status?a=b&c=d e"
	if err := Browse(address); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(pipe)
	if err != nil || string(got) != address+"\n" {
		t.Errorf("the opener was started with %q, %v", got, err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := Browse(address); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without an opener: %v", err)
	}
}

func TestOpener(t *testing.T) {
	for system, want := range map[string]string{"linux": "xdg-open", "freebsd": "xdg-open", "darwin": "open", "windows": "rundll32 url.dll,FileProtocolHandler"} {
		if got := strings.Join(opener(system), " "); got != want {
			t.Errorf("%s: %s, want %s", system, got, want)
		}
	}
}
