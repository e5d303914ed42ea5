// Command cmd builds the commands into a folder:
//
//	go run ./build/commands/cmd bin
//	go run ./build/commands/cmd bin/linux_arm64 linux/arm64
//	go run ./build/commands/cmd bin windows/amd64 outrider outrider-operate    # some of them
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"outrider.dev/build/commands"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run builds the commands and returns the exit status: 0 if they are built, 1 if that fails, 2 for wrong
// arguments.
func run(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, "usage: go run ./build/commands/cmd FOLDER [GOOS/GOARCH [COMMAND...]]")
		return 2
	}
	system, arch, names := "", "", commands.All()
	if len(args) > 1 {
		system, arch, _ = strings.Cut(args[1], "/")
	}
	if len(args) > 2 {
		names = args[2:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := os.MkdirAll(args[0], 0o755)
	if err == nil {
		err = commands.BuildFor(ctx, commands.Target{System: system, Arch: arch, Progress: stderr}, args[0], names...)
	}
	if err != nil {
		fmt.Fprintf(stderr, "build: error: %v\n", err)
		return 1
	}
	return 0
}
