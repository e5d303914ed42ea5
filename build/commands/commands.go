// Package commands builds the module's commands as they are shipped: for "make build", for
// the tests that run them, and for what measures them.
package commands

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
func flags(name, version string) []string {
	linker := "-ldflags=-s -w" + version
	if name == Agent {
		// It is in every pod, where its size costs memory and pull time, and it mostly waits.
		// With inlining it has 10.9 MB, without 9.8; the limit is 10 (docs/rationale.md).
		return []string{"-gcflags=all=-l", linker + " -funcalign=8"}
	}
	return []string{linker}
}

// version is the linker's flags that set what "outrider version" prints: the tag or the
// revision of the checkout, and the time of its commit. Without git they are empty. The go
// command's own stamp does not cover linked worktrees, and GOFLAGS can turn it off.
func version(ctx context.Context) string {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Env = append(os.Environ(), "TZ=UTC")
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	name := git("describe", "--tags", "--always", "--dirty", "--abbrev=12")
	if name == "" {
		return ""
	}
	if git("describe", "--tags") == "" {
		name = "devel-" + name
	}
	const pkg = "outrider.dev/internal/cli"
	when := git("log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")
	return fmt.Sprintf(" -X %s.build=%s -X %s.buildTime=%s", pkg, name, pkg, when)
}

// Given returns the path of a command: given, or if that is empty the command that it builds
// in dir.
func Given(ctx context.Context, given, dir, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	return filepath.Join(dir, name), Build(ctx, dir, name)
}

// Build builds commands into a folder, which must exist. It is to be called within the
// module.
func Build(ctx context.Context, dir string, names ...string) error {
	stamp := version(ctx)
	for _, name := range names {
		args := append([]string{"build", "-trimpath"}, flags(name, stamp)...)
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
