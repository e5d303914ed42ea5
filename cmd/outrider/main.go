// Command outrider is Outrider for people. As kubectl-outrider on the PATH it is
// "kubectl outrider" too.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 fine, 1 it failed
// or found something, 2 the input cannot be used.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "outrider",
		Short: "pods that start and stop without a race",
	}
	root.AddCommand(newDemo(), newInject(), newLint(), newPlan(), newProxyConfig(), newProxyStatus(), newRules(), newRun(), newSimulate(), newVerify(), cli.VersionCommand())
	return cli.Run(root, args, stdout, stderr, nil)
}
