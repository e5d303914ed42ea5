package operate

import (
	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/replicas"
	"outrider.dev/internal/ops/report"
)

const versionExamples = `  # this command, the control plane, and the proxies by version
  outrider version

  # this command alone, without a cluster
  outrider version --client
  outrider --version`

func NewVersion() *cobra.Command {
	var cluster target.ControlPlane
	var client bool
	var output string
	cmd := cli.VersionCommand()
	cmd.Short = "print the version of this command, the control plane and the proxies"
	cmd.Long = `Prints the version of this command, of each replica of the control plane (by a port that is
forwarded to this machine), and how many pods have a proxy of which version and image.

A cluster that cannot be reached is said in one line, and is no error: the exit status is 0.
It is 2 if the input is unusable.`
	cmd.Example = versionExamples
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all := report.Versions{Client: cli.ThisBuild()}
		if !client {
			switch c, err := cluster.Connect(cmd); {
			case err == nil:
				set := replicas.In(c, cluster.Namespace())
				defer set.Close()
				all.Read(cmd.Context(), c, set)
			case cmd.Flags().Changed("context") || cmd.Flags().Changed("kubeconfig"):
				return err
			default:
				all.Problem = err.Error()
			}
		}
		return view.Versions(cmd.OutOrStdout(), output, cmd.Root().Name(), all)
	}
	cluster.Add(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "this command alone: no cluster is asked")
	cli.Choice(cmd, &output, "output", "o", "how to print", "text", "json")
	return cmd
}
