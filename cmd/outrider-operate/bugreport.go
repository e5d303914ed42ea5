package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/handoff"
	"outrider.dev/cmd/internal/target"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/bugreport"
	"outrider.dev/internal/ops/check"
	"outrider.dev/internal/ops/install"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

type bugReportOptions struct {
	flags        *kubeclient.Flags
	controlPlane string
	revision     string
	output       string
	report       bugreport.Options
}

const bugReportExamples = `  # the control plane, and the newest pods with a proxy of all namespaces
  outrider bug-report

  # of one namespace, into a file of your choice
  outrider bug-report -n shop -o shop.tar.gz`

func newBugReport() *cobra.Command {
	o := &bugReportOptions{flags: kubeclient.NewFlags("")}
	cmd := &cobra.Command{
		Use:   "bug-report",
		Short: handoff.Short("bug-report"),
		Long: `Writes an archive: versions, checks, the release's values, the control plane's logs and what it
serves, objects, events, and of the newest pods with a proxy their YAML and logs. It changes
nothing in the cluster.

Of all Secrets it reads only the record of the release, for the values. In values, variables,
annotations, arguments and logs, it masks passwords, tokens, private keys, Authorization headers and
passwords in URLs, as far as they can be recognised by their form or name. Look through the archive
before you pass it on: errors.txt lists what could not be read, index.json what the archive contains
and what was left out.

Exit status: 0 if the archive is written, 1 if not, 2 if the input is unusable.`,
		Example: bugReportExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	o.flags.Add(fs, "namespace of the pods with a proxy; default: all")
	fs.StringVar(&o.controlPlane, "control-plane-namespace", installation.Namespace, "namespace of the control plane")
	fs.StringVar(&o.revision, "revision", "", "revision of the control plane; default: the default one")
	fs.StringVarP(&o.output, "output", "o", "", "file for the archive; default: outrider-bug-report-TIME.tar.gz")
	fs.IntVar(&o.report.Pods, "pods", 20, "how many pods with a proxy to read")
	target.Timeout(cmd, &o.report.Timeout, 5*time.Minute, "how long to read at most; what is left is noted in the archive")
	cli.CompleteFiles(cmd, "output", "gz")
	return cmd
}

func (o *bugReportOptions) run(cmd *cobra.Command) error {
	if o.report.Pods < 1 {
		return &cli.UsageError{Err: fmt.Errorf("--pods=%d: must be 1 or more", o.report.Pods)}
	}
	values := map[string]any{"revision": o.revision}
	release, err := install.ReleaseOf(o.controlPlane, values)
	if err != nil {
		return err
	}
	client, err := target.Connect(cmd, o.flags)
	if err != nil {
		return err
	}
	if o.output == "" {
		o.output = "outrider-bug-report-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	defer client.Progress.End()
	r := o.report
	r.Client, r.ControlPlane, r.Namespace, r.Version = client, o.controlPlane, *o.flags.Namespace, cli.Version()
	r.Checks = func(ctx context.Context) (any, error) {
		return check.Run(ctx, client, check.Options{Namespace: o.controlPlane, Version: r.Version, Release: release}), nil
	}
	r.Values = func(context.Context) (map[string]any, error) {
		inControlPlane := *client
		inControlPlane.Namespace = o.controlPlane
		return install.Installed(install.Options{Client: &inControlPlane, Values: values})
	}
	ctx, stop := target.Interruptible(cmd)
	defer stop()
	err = bugreport.Save(o.output, func(w io.Writer) error { return bugreport.Write(ctx, w, r) })
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; no archive is written")
	}
	if err != nil {
		return err
	}
	client.Progress.Step("%s: look through it before you hand it on", o.output)
	return nil
}
