// Command outriderd is Outrider's control plane. It has no service yet: it knows its
// version, and what it will be is in docs/architecture.md.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/version"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "outriderd",
		Short: "the control plane of Outrider (not there yet)",
	}
	root.AddCommand(version.Command())
	return cli.Run(root, args, stdout, stderr, nil)
}
