// Package commands builds the module's commands as they are shipped: for "make build", for
// the tests that run them, and for what measures them.
package commands

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// The commands of cmd/.
const (
	CLI          = "outrider"
	Agent        = "outrider-agent"
	ControlPlane = "outriderd"
)

// racing is whether the commands get the race detector, as their builder has it.
var racing bool

// flags are those of "go build" for one command.
func flags(name string) []string {
	const plain = "-s -w"
	if name == Agent {
		// It is in every pod, where its size is memory and pull time; what it does waits for
		// others. Without inlining it is a tenth smaller (docs/rationale.md).
		return []string{"-gcflags=all=-l", "-ldflags=" + plain + " -funcalign=8"}
	}
	return []string{"-ldflags=" + plain}
}

// Build builds commands into a folder, which must exist. It is to be called within the
// module.
func Build(ctx context.Context, dir string, names ...string) error {
	for _, name := range names {
		args := append([]string{"build", "-trimpath"}, flags(name)...)
		env := "CGO_ENABLED=0"
		if racing {
			args, env = append(args, "-race"), "CGO_ENABLED=1"
		}
		cmd := exec.CommandContext(ctx, "go", append(args, "-o", filepath.Join(dir, name), "outrider.dev/cmd/"+name)...)
		cmd.Env = append(os.Environ(), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	return nil
}
