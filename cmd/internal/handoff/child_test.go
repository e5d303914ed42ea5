package handoff

import (
	"errors"
	"os/exec"
	"testing"

	"outrider.dev/internal/base/cli"
)

// The exit status of the child becomes the exit status of outrider. A program that cannot be run is an error.
func TestStatusOfAChild(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell")
	}
	var exit *cli.ExitError
	if err := child(sh, []string{"-c", "exit 3"}); !errors.As(err, &exit) || exit.Status != 3 {
		t.Errorf("%v; want status 3", err)
	}
	if err := child(sh, []string{"-c", "exit 0"}); err != nil {
		t.Error(err)
	}
	if err := child(t.TempDir()+"/none", nil); err == nil || errors.As(err, &exit) {
		t.Errorf("a program that does not exist: %v", err)
	}
}
