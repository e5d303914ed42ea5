package main

import (
	"errors"

	"github.com/spf13/cobra"

	"outrider.dev/internal/check"
	"outrider.dev/internal/cli"
	"outrider.dev/internal/install"
	"outrider.dev/internal/kubeclient"
	"outrider.dev/internal/view"
)

// clusterFlags are those of commands that talk to a cluster in which the control plane is.
type clusterFlags struct{ *kubeclient.Flags }

func (c *clusterFlags) add(cmd *cobra.Command) {
	c.Flags = kubeclient.NewFlags(install.Namespace)
	c.Flags.Add(cmd.Flags(), "namespace of the control plane")
	cmd.Flags().SortFlags = false
}

// namespace is the control plane's.
func (c *clusterFlags) namespace() string { return *c.Flags.Namespace }

func (c *clusterFlags) client() (*kubeclient.Client, error) { return clientOf(c.Flags) }

// clientOf returns the cluster's clients; flags that name none are unusable input.
func clientOf(f *kubeclient.Flags) (*kubeclient.Client, error) {
	client, err := f.Client()
	var config *kubeclient.ConfigError
	if errors.As(err, &config) {
		return nil, &cli.UsageError{Err: err, Hint: config.Hint()}
	}
	return client, err
}

type checkOptions struct {
	clusterFlags
	values valueFlags
	before bool
	output string
}

const checkExamples = `  # can Outrider be installed here?
  outrider check --pre

  # does it work?
  outrider check

  # in CI
  outrider check -o junit > outrider.xml

  # what failed, and what to do
  outrider check -o json | jq '.[] | select(.result == "failed") | {id, reason, hint}'`

func newCheck() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check [--pre]",
		Short: "find out whether Outrider can be installed in a cluster, or works there",
		Long: `Asks the API server, and the control plane by ports that are forwarded to this machine, and
prints a line for each check: ok, warning, failed, or skipped with the reason why it is not
known. With --pre nothing of Outrider has to be in the cluster; the values are those that
outrider install would get.

Nothing is changed: pods and roles are created as a dry run.

Exit status: 0 if no check failed, 1 if one did, 2 if the input is unusable.`,
		Example: checkExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.before, "pre", false, "check whether Outrider can be installed")
	o.values.add(cmd)
	cli.Choice(cmd, &o.output, "output", "o", "how to print", view.CheckOutputs...)
	return cmd
}

func (o *checkOptions) run(cmd *cobra.Command) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	values, err := o.values.read(cmd)
	if err != nil {
		return err
	}
	return runChecks(cmd, client, values, o.before, o.output)
}

// runChecks prints the checks; it fails if one of them did.
func runChecks(cmd *cobra.Command, client *kubeclient.Client, values map[string]any, before bool, output string) error {
	release, err := install.ReleaseOf(client.Namespace, values)
	if err != nil {
		return unusableValues(err)
	}
	all := check.Run(cmd.Context(), client, check.Options{Namespace: client.Namespace, Version: cli.Version(), Before: before, Release: release})
	w := cmd.OutOrStdout()
	if err := view.Checks(w, cli.TerminalOf(w), output, cmd.CommandPath(), all); err != nil {
		return err
	}
	if len(check.Failures(all)) > 0 {
		return &cli.ExitError{Status: cli.Failed} // the reasons are printed
	}
	return nil
}
