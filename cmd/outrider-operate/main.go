// Command outrider-operate is a part of outrider, which runs it. It has the commands that install, check, upgrade
// and remove a mesh, for which they use the chart and Helm's library. Package handoff explains why it is a separate
// program.
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

// run runs a command, and returns the exit status: 0 for success, 1 for a failure or a finding, 2 for unusable input.
func run(args []string, stdout, stderr io.Writer) int {
	log.SetOutput(io.Discard) // Helm's SDK logs values that violate the schema, and returns them as errors too
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
