package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/handoff"
	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/check"
	"outrider.dev/internal/ops/install"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

type checkOptions struct {
	target.ControlPlane
	values       valueFlags
	checks       check.Options
	controlPlane string
	proxies      bool
	all          bool
	which        check.Selection
	output       string
}

const checkExamples = `  # can Outrider be installed here?
  outrider check --pre

  # and does capture work on the kernels of its nodes? This runs a pod on a node of each kind
  outrider check --pre --nodes

  # does it work?
  outrider check

  # does each proxy have the current configuration: of all pods, of an application, of one pod
  outrider check --proxy
  outrider check --proxy -n shop -l app=checkout
  outrider check --proxy app-1.shop

  # in CI
  outrider check -o junit > outrider.xml

  # what failed, and what to do
  outrider check -o json | jq '.[] | select(.result == "failed") | {id, reason, hint}'`

func newCheck() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check [--pre | --proxy [POD[.NAMESPACE]]]",
		Short: handoff.Short("check"),
		Long: `Checks the cluster through the API server, and the control plane through port forwarding. Prints
one line per check: ok, warning, failed, or skipped with the reason why the result is not known.
With --pre Outrider need not be installed; give the values that outrider install will get.

Nothing is changed: pods and roles are created as a dry run. With --nodes one pod is created on a
node of each kind (kernel, operating system, architecture), with the privileges of outrider-init
and its own network namespace. It sets up the capture, proves that it works, and is deleted.

With --proxy each pod's proxy is checked instead: its connection, its configuration, its agent's
readiness, its certificate and its version. -n and -l then select pods, of all namespaces by
default. The table counts the proxies that are ok and lists the first ones that are not; -o json
lists all. Readiness and certificate are read from at most 100 agents, through port forwarding.

Exit status: 0 if no check failed, 1 if one did, 2 if the input is unusable.`,
		Example: checkExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.Add(cmd)
	fs := cmd.Flags()
	fs.Lookup("namespace").Usage = "namespace of the control plane; with --proxy: namespace of the pods, default all"
	fs.BoolVar(&o.checks.Before, "pre", false, "check whether Outrider can be installed")
	fs.BoolVar(&o.checks.Nodes, "nodes", false, "try the capture on nodes, in temporary pods")
	fs.StringVar(&o.checks.NodesNamespace, "nodes-namespace", "", "namespace of these pods; default: the control plane's if it exists, else \"default\"")
	fs.BoolVar(&o.proxies, "proxy", false, "check each proxy")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "with --proxy: the pods of all namespaces, which is the default")
	fs.StringVarP(&o.which.Labels, "selector", "l", "", "with --proxy: labels of the pods, such as app=checkout")
	fs.StringVar(&o.controlPlane, "control-plane-namespace", installation.Namespace, "with --proxy: namespace of the control plane")
	cmd.MarkFlagsMutuallyExclusive("pre", "proxy")
	cmd.MarkFlagsMutuallyExclusive("nodes", "proxy")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	o.values.add(cmd)
	cli.Choice(cmd, &o.output, "output", "o", "how to print", view.CheckOutputs...)
	return cmd
}

// usable returns an error if a flag or argument is invalid or would have no effect.
func (o *checkOptions) usable(cmd *cobra.Command, args []string) error {
	if err := target.CheckSelector(o.which.Labels); err != nil {
		return err
	}
	if len(args) > 0 && !o.proxies {
		return &cli.UsageError{Err: fmt.Errorf("%s: a pod is named, and that is for --proxy", args[0])}
	}
	for name, proxies := range map[string]bool{ // any order: one of them is enough
		"all-namespaces": true, "selector": true, "control-plane-namespace": true, "profile": false, "filename": false, "set": false,
	} {
		switch {
		case !cmd.Flags().Changed(name) || proxies == o.proxies:
		case proxies:
			return &cli.UsageError{Err: fmt.Errorf("--%s: is for --proxy", name)}
		default:
			return &cli.UsageError{Err: fmt.Errorf("--%s: values have no effect with --proxy", name)}
		}
	}
	if o.checks.NodesNamespace != "" && !o.checks.Nodes {
		return &cli.UsageError{Err: errors.New("--nodes-namespace: is for --nodes")}
	}
	return nil
}

func (o *checkOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.usable(cmd, args); err != nil {
		return err
	}
	client, err := o.Connect(cmd)
	if err != nil {
		return err
	}
	// An interrupted check must still delete the pods that it has created.
	ctx, stop := target.Interruptible(cmd)
	defer stop()
	cmd.SetContext(ctx)
	if o.proxies {
		return o.checkProxies(cmd, client, strings.Join(args, ""))
	}
	values, err := o.values.read(cmd)
	if err != nil {
		return err
	}
	return runChecks(cmd, client, values, o.checks, o.output)
}

func (o *checkOptions) checkProxies(cmd *cobra.Command, client *kubeclient.Client, pod string) error {
	o.which.Pod = pod
	if cmd.Flags().Changed("namespace") {
		o.which.Namespace = o.Namespace()
	}
	o.checks.Namespace, o.checks.Version = o.controlPlane, cli.Version()
	all, err := check.RunProxies(cmd.Context(), client, o.checks, o.which)
	if err != nil {
		return err
	}
	return printChecks(cmd, o.output, all)
}

// runChecks runs the checks and prints them. It returns an error if one of them failed.
func runChecks(cmd *cobra.Command, client *kubeclient.Client, values map[string]any, options check.Options, output string) error {
	release, err := install.ReleaseOf(client.Namespace, values)
	if err != nil {
		return err
	}
	options.Namespace, options.Version, options.Release = client.Namespace, cli.Version(), release
	if options.Nodes {
		client.Progress.Wait("a pod tries capture on a node of each kind")
		defer client.Progress.End()
	}
	return printChecks(cmd, output, check.Run(cmd.Context(), client, options))
}

func printChecks(cmd *cobra.Command, output string, all []check.Check) error {
	w := cmd.OutOrStdout()
	if err := view.Checks(w, cli.TerminalOf(w), output, cmd.CommandPath(), all); err != nil {
		return err
	}
	if cmd.Context().Err() != nil {
		return errors.New("interrupted: what was not asked is skipped")
	}
	if len(check.Failures(all)) > 0 {
		return &cli.ExitError{Status: cli.Failed} // without a message: the reasons are already printed
	}
	return nil
}
