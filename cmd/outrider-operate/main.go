// Command outrider-operate is a part of outrider, which runs it: the commands that install, check and remove a mesh,
// by the chart and Helm's library. Package handoff says why they are a program of their own.
package main

import (
	"io"
	"log"
	"os"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/handoff"
	"outrider.dev/internal/base/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 for success, 1 for a failure or a finding,
// 2 for unusable input.
func run(args []string, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // Helm's SDK logs violations of the values' schema, which are also returned as errors
	if err := handoff.CheckVersion(); err != nil {
		fails := &cobra.Command{Use: "outrider", RunE: func(*cobra.Command, []string) error { return err }}
		return cli.Run(fails, []string{}, stdout, stderr, nil)
	}
	root := handoff.Root(append(commands(), cli.VersionCommand())...)
	root.Long = "These commands of outrider are in the program " + handoff.Program + ", which outrider runs. They are called as\noutrider's: outrider install."
	root.CompletionOptions.DisableDefaultCmd = true
	return cli.Run(root, args, stdout, stderr, nil)
}

func commands() []*cobra.Command {
	return []*cobra.Command{newBugReport(), newCheck(), newInstall(), newManifest(), newUninstall(), newUpgrade()}
}
