package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/podrestart"
)

// rewritten has the flags of commands that print manifests with changed pods.
type rewritten struct {
	output string
	diff   bool
}

func (o *rewritten) flags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.output, "output", "o", "", "file for the result (default standard output)")
	fs.BoolVar(&o.diff, "diff", false, "print what changes and why, instead of the result")
}

// write writes the manifests or, with --diff, the differences: to the file of --output, or to standard output.
func (o *rewritten) write(cmd *cobra.Command, r offline.Result) error {
	text := r.Text()
	if o.diff {
		text = r.Diff()
	}
	if o.output == "" {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	if err := os.WriteFile(o.output, text, 0o644); err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--output: %w", err)}
	}
	return nil
}

type uninjectOptions struct {
	rewritten
	target.Pods
	dryRun  bool
	timeout time.Duration
}

const uninjectExamples = `  # restore a manifest that was injected
  outrider uninject -f injected.yaml > app.yaml

  # take a namespace out of the mesh: first print what would be done, then do it
  outrider uninject -n shop --dry-run
  outrider uninject -n shop

  # all of them, before outrider uninstall
  outrider uninject -A`

func newUninject() *cobra.Command {
	o := &uninjectOptions{Pods: target.Pods{Flags: kubeclient.NewFlags("")}}
	cmd := &cobra.Command{
		Use:   "uninject -f FILE|-n NAMESPACE|-A",
		Short: "undo the injection of manifests, or take namespaces of a cluster out of the mesh",
		Long: `With -f it reads manifests, removes what outrider inject has added and restores what it has changed,
by the record in the annotations outrider.dev/status and outrider.dev/overrides. Other documents
stay byte for byte. Pods that are not injected, or that belong to another mesh, are unchanged, and
listed on standard error.

With -n or -A it takes namespaces of a cluster out of the mesh: it removes the labels that
request injection, and restarts the workloads whose pods have a proxy, as kubectl rollout
restart does, until no pod has one. Pods that no restart replaces are listed with the reason:
delete them, or change their manifests. If another injector reads Istio's labels, they stay.
The command can be interrupted and run again.

Exit status: 0 if it is done, 1 if a record cannot be read or a pod with a proxy is left, 2 if
the input is unusable.`,
		Example: uninjectExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&o.Files, "filename", "f", nil, cli.Manifest)
	o.rewritten.flags(fs)
	o.Flags.Add(fs, "namespace to take out of the mesh")
	fs.BoolVarP(&o.All, "all-namespaces", "A", false, "take all namespaces out of the mesh")
	fs.BoolVar(&o.dryRun, "dry-run", false, "in a cluster: list what would be done, and change nothing")
	target.Timeout(cmd, &o.timeout, 10*time.Minute, "in a cluster: how long to wait at most")
	cli.CompleteFiles(cmd, "filename", "yaml", "yml", "json")
	return cmd
}

func (o *uninjectOptions) run(cmd *cobra.Command) error {
	named := cmd.Flags().Changed("namespace")
	switch {
	case len(o.Files) > 0 && (named || o.All):
		return &cli.UsageError{Err: errors.New("--filename is for manifests, --namespace and --all-namespaces for a cluster: they exclude one another")}
	case named || o.All:
		if err := o.Check(cmd); err != nil {
			return err
		}
		return o.cluster(cmd)
	case len(o.Files) == 0:
		return &cli.UsageError{Err: errNothing.Err, Hint: errNothing.Hint + "; -n NAMESPACE or -A takes namespaces of a cluster out of the mesh"}
	}
	files, err := readFiles(cmd, o.Files)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	r, err := offline.Uninject(files, func(m offline.Message) { fmt.Fprintf(cmd.ErrOrStderr(), "outrider: %s\n", m) })
	switch {
	case err != nil:
		return &cli.UsageError{Err: err}
	case r.Refused > 0:
		return fmt.Errorf("pods whose record of the injection cannot be read: %d; nothing is printed", r.Refused)
	}
	return o.write(cmd, r)
}

// cluster takes namespaces of a cluster out of the mesh.
func (o *uninjectOptions) cluster(cmd *cobra.Command) error {
	client, in, err := o.Connect(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	defer client.Progress.End()
	left, err := podrestart.Run(ctx, podrestart.Options{Client: client, Namespace: in, DryRun: o.dryRun})
	for _, p := range left {
		fmt.Fprintf(cmd.OutOrStdout(), "%s/%s has a proxy: %s\n", p.Namespace, p.Name, p.Reason)
	}
	if err == nil && len(left) > 0 && !o.dryRun {
		err = &target.Refusal{Err: fmt.Errorf("pods with a proxy that no restart replaces: %d", len(left)), Then: "the reasons are listed; then run it again"}
	}
	return err
}
