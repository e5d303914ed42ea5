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
	cmd.Long = `Prints the version of this command and of each replica of the control plane (through port
forwarding), and how many pods have a proxy of which version and image.

If the cluster cannot be reached, one line says so, and the exit status is still 0. It is 2 if the
input is unusable.`
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
	cmd.Flags().BoolVar(&client, "client", false, "print the version of this command only, without contacting a cluster")
	cli.Choice(cmd, &output, "output", "o", "how to print", "text", "json")
	return cmd
}
