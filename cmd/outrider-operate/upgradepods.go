package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/handoff"
	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/podupgrade"
)

type upgradePodsOptions struct {
	target.Pods
	image  string
	roll   podupgrade.Options
	dryRun bool
	output string
}

func newUpgrade() *cobra.Command {
	cmd := newInstall()
	cmd.Use, cmd.Short = "upgrade", handoff.Short("upgrade")
	cmd.Example = upgradeExamples
	cmd.AddCommand(newUpgradePods())
	return cmd
}

const upgradeExamples = `  # the control plane, then the proxies of all pods
  outrider upgrade
  outrider upgrade pods -A`

const upgradePodsExamples = `  # which pods have an old proxy, and can be given a new one?
  outrider upgrade pods -A --dry-run

  # replace the proxies of a namespace, one at a time
  outrider upgrade pods -n shop

  # of one application, four at a time
  outrider upgrade pods -n shop -l app=checkout --max-unavailable 4

  # back to a previous image
  outrider upgrade pods -n shop --image registry.example/outrider/proxy:1.0.0`

func newUpgradePods() *cobra.Command {
	o := &upgradePodsOptions{}
	cmd := &cobra.Command{
		Use:   "pods",
		Short: "replace the proxy of running pods with the one that a new pod would get",
		Long: `Finds out, by a dry run at the API server, which proxy image the next pod of each workload would
get, and changes the image of the proxy's container in pods that have another one. The kubelet
replaces only that container: applications are not restarted. Each node runs the new image once
beforehand. The old proxy drains: requests in flight are answered, HTTP clients are told to
reconnect, and new connections wait for the new proxy. Open connections of other protocols are cut.

Only the image changes. Everything else that the new version's injection would write, a pod gets
when its workload recreates it. If a pod does not become ready, the upgrade stops and restores that
pod's previous image.

Exit status: 0 if all outdated proxies are replaced, 1 if not, 2 if the input is unusable.`,
		Example: upgradePodsExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	o.Add(cmd)
	fs.StringVar(&o.image, "image", "", "the proxy's image; default: what a new pod would get")
	fs.IntVar(&o.roll.MaxUnavailable, "max-unavailable", 1, "how many proxies are replaced at a time; never more than a quarter of a workload's pods, but at least one")
	target.Timeout(cmd, &o.roll.Timeout, podupgrade.DefaultTimeout, "how long one pod may take to get ready")
	fs.BoolVar(&o.dryRun, "dry-run", false, "list the pods, and change nothing")
	cli.Choice(cmd, &o.output, "output", "o", "how to print the list", "table", "json")
	return cmd
}

// check returns an error if a flag has an invalid value.
func (o *upgradePodsOptions) check(cmd *cobra.Command) error {
	switch {
	case o.roll.MaxUnavailable < 1:
		return &cli.UsageError{Err: fmt.Errorf("--max-unavailable=%d: must be 1 or more", o.roll.MaxUnavailable)}
	case o.image != strings.TrimSpace(o.image):
		return &cli.UsageError{Err: fmt.Errorf("--image=%q: has spaces around it", o.image)}
	}
	return o.Pods.Check(cmd)
}

func (o *upgradePodsOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	client, namespace, err := o.Connect(cmd)
	if err != nil {
		return err
	}
	all, err := podupgrade.Plan(cmd.Context(), client.Core, podupgrade.Selection{Namespace: namespace, Labels: o.Labels, Image: o.image})
	if err != nil {
		return err
	}
	if err := view.Candidates(cmd.OutOrStdout(), o.output, all); err != nil || o.dryRun {
		return err
	}
	progress := client.Progress
	defer progress.End()
	o.roll.Client = client
	o.roll.Progress = func(e podupgrade.Event) { progress.Step("%s", view.UpgradeStep(e)) }
	result, err := podupgrade.Run(cmd.Context(), all, o.roll)
	progress.Step("%d replaced, %d failed, %d not begun", len(result.Replaced), len(result.Failed), len(result.Left))
	return err
}
