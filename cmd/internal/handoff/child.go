package handoff

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"

	"outrider.dev/internal/base/cli"
)

// child runs a program as a child process. It is used on systems on which a process cannot become another program.
func child(file string, args []string) error {
	cmd := exec.Command(file, args...)
	cmd.Args[0], cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Args[0], os.Stdin, os.Stdout, os.Stderr
	// A console sends Ctrl-C to all of its processes. This process ignores it, because only the child should handle
	// it.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored)
	defer signal.Stop(ignored)
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return &cli.ExitError{Status: exit.ExitCode()}
	}
	return err
}
