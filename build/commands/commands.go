// Package commands builds the module's commands as they are shipped, for "make build", for tests that run them,
// and for benchmarks.
package commands

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names of the commands below cmd/.
const (
	CLI          = "outrider"
	Operate      = "outrider-operate" // the commands of CLI that link Helm; CLI executes it
	Agent        = "outrider-agent"
	ControlPlane = "outriderd"
	Node         = "outrider-node"
)

// All returns the names of all commands.
func All() []string { return []string{CLI, Operate, Agent, ControlPlane, Node} }

// racing is true if the commands are to be built with the race detector, because this program was built with
// it.
var racing bool

// noTrace omits gRPC's debugging pages, which nothing serves. They use html/template, because of which the linker
// would keep every exported method of a program.
const noTrace = "-tags=grpcnotrace"

// flags returns the flags of "go build" for one command.
func flags(name, version string) []string {
	linker := "-ldflags=-s -w" + version
	if name == Agent && !racing { // a build with the race detector is not shipped, so its size does not matter
		// The agent runs in every pod, so its size costs memory and pull time. It mostly waits, so it can do
		// without inlining. With inlining it has 11.2 MB, without inlining 10.0; the limit is 10
		// (docs/rationale.md).
		return []string{noTrace, "-gcflags=all=-l", linker + " -funcalign=8"}
	}
	return []string{noTrace, linker}
}

// A Stamp identifies the sources of a build.
type Stamp struct {
	Version string // the tag, or "devel-" followed by the commit
	Commit  string
	Time    time.Time // of the commit
}

// StampOf returns the stamp of the checkout in the working directory, or an empty one if git fails. The go
// command's own stamp is not used, because it does not work in linked worktrees, and GOFLAGS can turn it off.
func StampOf(ctx context.Context) Stamp {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	s := Stamp{Version: git("describe", "--tags", "--always", "--dirty", "--abbrev=12"), Commit: git("rev-parse", "HEAD")}
	if s.Version == "" {
		return Stamp{}
	}
	if git("describe", "--tags") == "" {
		s.Version = "devel-" + s.Version
	}
	if when, err := time.Parse(time.RFC3339, git("log", "-1", "--format=%cI")); err == nil {
		s.Time = when.UTC()
	}
	return s
}

// linked returns the linker flags that set the version for "outrider version".
func (s Stamp) linked() string {
	if s.Version == "" {
		return ""
	}
	const pkg = "outrider.dev/internal/base/cli"
	return fmt.Sprintf(" -X %s.build=%s -X %s.buildTime=%s", pkg, s.Version, pkg, s.Time.Format(time.RFC3339))
}

// Given returns the path of a command: the argument given or, if that is empty, a command that it builds in
// dir.
func Given(ctx context.Context, given, dir, name string) (string, error) {
	if given != "" {
		return given, nil
	}
	return filepath.Join(dir, name), Build(ctx, dir, name)
}

// Build builds commands into a folder, which must exist. It must be called within the module.
func Build(ctx context.Context, dir string, names ...string) error {
	return BuildFor(ctx, Target{}, dir, names...)
}

// File returns the file name of a command on an operating system, named as in GOOS.
func File(system, name string) string {
	if system == "windows" {
		return name + ".exe"
	}
	return name
}

// sameBytes makes the compiler compile the functions of a package one after the other, so that builds are
// reproducible: if it compiles two at once, Go 1.26 sometimes omits the type of a pointer. It does not affect
// packages that are already in the build cache.
const sameBytes = "GO19CONCURRENTCOMPILATION=0"

// A Target is the system for which commands are built.
type Target struct {
	System, Arch string    // as GOOS and GOARCH; default: this machine
	Progress     io.Writer // receives the name of each package that is compiled; default: none
}

// BuildFor builds commands for a system into a folder, which must exist. If t.System is set, they are built as
// they are shipped, always without the race detector.
func BuildFor(ctx context.Context, t Target, dir string, names ...string) error {
	stamp := StampOf(ctx).linked()
	for _, name := range names {
		args, cgo := append([]string{"build", "-trimpath"}, flags(name, stamp)...), "CGO_ENABLED=0"
		if racing && t.System == "" {
			args, cgo = append(args, "-race"), "CGO_ENABLED=1"
		}
		file := filepath.Join(dir, File(t.System, name))
		cmd := exec.CommandContext(ctx, "go", append(args, "-o", file, "outrider.dev/cmd/"+name)...)
		cmd.Env = append(os.Environ(), cgo, "GOOS="+t.System, "GOARCH="+t.Arch, sameBytes)
		var printed bytes.Buffer
		cmd.Stdout, cmd.Stderr = &printed, &printed
		if t.Progress != nil {
			cmd.Args = slices.Insert(cmd.Args, 2, "-v")
			cmd.Stdout, cmd.Stderr = t.Progress, t.Progress
		}
		// When the go command is interrupted, it also ends its compilers.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, &printed)
		}
	}
	return nil
}
