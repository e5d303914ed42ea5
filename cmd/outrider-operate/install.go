package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// valueFlags has the flags that set the values of the chart.
type valueFlags struct {
	profile  string
	files    []string
	settings []string
}

func (v *valueFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&v.profile, "profile", "", "set of values to start from")
	fs.StringArrayVarP(&v.files, "filename", "f", nil, "values: a file or folder in YAML, a URL, or '-' for standard input; may be repeated, the last one wins")
	fs.StringArrayVar(&v.settings, "set", nil, "a value, as name=value; may be repeated; wins over files")
	cli.Complete(cmd, "profile", install.Profiles()...)
	cli.CompleteFiles(cmd, "filename", "yaml", "yml", "json")
}

// read returns the values of the profile, overridden by the files in their order, and then by the settings.
func (v *valueFlags) read(cmd *cobra.Command) (map[string]any, error) {
	var files []install.File
	err := cli.ReadAll(cmd, v.files, func(name string, data []byte) error {
		files = append(files, install.File{Name: name, Data: data})
		return nil
	})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return install.WithProfile(v.profile, files, v.settings)
}

type installOptions struct {
	target.ControlPlane
	values  valueFlags
	output  string
	dryRun  bool
	wait    bool
	timeout time.Duration
}

// options returns the options for package install. It fails if the values are invalid, or if there is no cluster.
func (o *installOptions) options(cmd *cobra.Command) (install.Options, error) {
	values, err := o.values.read(cmd)
	if err != nil {
		return install.Options{}, err
	}
	if _, err := install.Manifest(o.Namespace(), values); err != nil {
		return install.Options{}, err // invalid values are reported even if there is no cluster
	}
	client, err := o.Connect(cmd)
	return install.Options{Client: client, Values: values, DryRun: o.dryRun}, err
}

const installExamples = `  # with the defaults, into outrider-system; then a check
  outrider install

  # check first whether it can work, and print what would be applied
  outrider check --pre
  outrider install --dry-run > manifest.yaml

  # three replicas, images from a registry of your own
  outrider install --set pilot.replicaCount=3 --set global.hub=registry.example/outrider

  # values from a file, another context
  outrider install -f values.yaml --context staging

  # helm sees the release, and can take it over
  helm -n outrider-system status outrider`

func newInstall() *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: handoff.Short("install"),
		Long: `Checks the cluster, applies the chart that is part of this command as a release of Helm, waits
until the control plane is ready, and checks again. If the release is there already, it is
upgraded to this version and these values, so the command can be repeated. The next run completes
one that was interrupted.

CustomResourceDefinitions that the cluster has already are not changed, unless this command
has added them.

Exit status: 0 if it works, 1 if it does not, 2 if the input is unusable; then nothing was
changed.`,
		Example: installExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.install(cmd) },
	}
	o.Add(cmd)
	o.values.add(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&o.dryRun, "dry-run", false, "validate with the API server, print the manifest, change nothing")
	fs.BoolVar(&o.wait, "wait", true, "wait until the control plane is ready, and check it")
	target.Timeout(cmd, &o.timeout, 5*time.Minute, "how long to wait at most")
	cli.Choice(cmd, &o.output, "output", "o", "how to print the check", view.CheckOutputs...)
	return cmd
}

func (o *installOptions) install(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	options, err := o.options(cmd)
	if err != nil {
		return err
	}
	defer options.Progress.End()
	if err := o.before(ctx, cmd, options); err != nil {
		return err
	}
	r, err := install.Apply(ctx, options)
	if err != nil {
		return err
	}
	if o.dryRun {
		_, err := fmt.Fprint(cmd.OutOrStdout(), r.Manifest)
		return err
	}
	if !o.wait {
		return nil
	}
	waited := options.Await(ctx, r)
	options.Progress.End()
	// The checks run even if Await failed, because they print a hint for each part that is not ready.
	if err := runChecks(cmd, options.Client, options.Values, check.Options{}, o.output); waited == nil {
		return err
	}
	return waited
}

// before makes the checks of "check --pre", and returns an error if one that blocks an installation has failed. Other
// failures are printed as notes. An interrupted release is no failure, because [install.Apply] completes it.
func (o *installOptions) before(ctx context.Context, cmd *cobra.Command, options install.Options) error {
	release, err := install.ReleaseOf(options.Namespace, options.Values)
	if err != nil {
		return err
	}
	all := check.Run(ctx, options.Client, check.Options{Namespace: options.Namespace, Version: cli.Version(), Before: true, Release: release})
	var fatal []check.Check
	for _, c := range check.Failures(all) {
		if c.Blocks() {
			fatal = append(fatal, c)
			continue
		}
		cli.Note(cmd, "%s: %s", c.ID, c.Reason)
	}
	if len(fatal) == 0 {
		return nil
	}
	w := cmd.OutOrStdout()
	if err := view.Checks(w, cli.TerminalOf(w), o.output, cmd.CommandPath(), fatal); err != nil {
		return err
	}
	return &cli.ExitError{Status: cli.Failed, Err: errors.New("the cluster is not ready for it; nothing was changed")}
}

const manifestExamples = `  # what install applies, for review or for GitOps
  outrider manifest > outrider.yaml

  # the difference that a value makes
  diff <(outrider manifest) <(outrider manifest --set pilot.replicaCount=3)`

func newManifest() *cobra.Command {
	o := &installOptions{}
	var namespace string
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: handoff.Short("manifest"),
		Long: `Prints the CustomResourceDefinitions and the objects of the release, in the order in which
they are applied. It contacts no cluster.`,
		Example: manifestExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, err := o.values.read(cmd)
			if err != nil {
				return err
			}
			text, err := install.Manifest(namespace, values)
			if err != nil {
				return err
			}
			return view.Manifest(cmd.OutOrStdout(), o.output, text)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&namespace, "namespace", "n", installation.Namespace, "namespace of the control plane")
	o.values.add(cmd)
	cli.Choice(cmd, &o.output, "output", "o", "how to print", "yaml", "json")
	return cmd
}

const uninstallExamples = `  # before it: remove the labels, and recreate the pods that have a proxy
  outrider uninject -A

  # the control plane
  outrider uninstall

  # and the authority's keys, the roots in each namespace, and the kinds that install added
  outrider uninstall --purge`

type uninstallOptions struct {
	installOptions
	revision string
	purge    bool
	force    bool
}

func newUninstall() *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall [--purge]",
		Short: handoff.Short("uninstall"),
		Long: `Removes the release, and waits until its pods have ended. While pods with a proxy run, it
lists them and removes nothing: their certificates would expire within a day, and the pods that
replace them would start without an order. --force removes the release nevertheless.

With --purge it also removes the authority's keys, the roots in each namespace, the
CustomResourceDefinitions that outrider install has added with all objects of these kinds, and
the namespace, if outrider install has created it. Labels that request injection stay.

Exit status: 0 if it is removed, 1 if it is not, 2 if the input is unusable.`,
		Example: uninstallExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.uninstall(cmd) },
	}
	o.Add(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.revision, "revision", "", "revision to remove; default: the default one")
	fs.BoolVar(&o.purge, "purge", false, "also remove keys, roots, CustomResourceDefinitions and the namespace")
	fs.BoolVar(&o.force, "force", false, "remove it although pods with a proxy run")
	fs.BoolVar(&o.dryRun, "dry-run", false, "say what would be removed, change nothing")
	target.Timeout(cmd, &o.timeout, 5*time.Minute, "how long to wait at most")
	return cmd
}

func (o *uninstallOptions) uninstall(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	o.values.settings = []string{"revision=" + o.revision}
	options, err := o.options(cmd)
	if err != nil {
		return err
	}
	defer options.Progress.End()
	if err := o.meshed(ctx, cmd, options.Client); err != nil {
		return err
	}
	if err := install.Remove(ctx, options); err != nil {
		return err
	}
	if !o.purge {
		return nil
	}
	return install.Purge(ctx, options)
}

// meshed lists the pods that have a proxy of the revision. It returns an error if there are any, except with --force
// or --dry-run.
func (o *uninstallOptions) meshed(ctx context.Context, cmd *cobra.Command, client *kubeclient.Client) error {
	pods, others, err := install.Dependents(ctx, client.Core, o.revision)
	if err != nil {
		return err
	}
	for _, p := range pods {
		fmt.Fprintf(cmd.OutOrStdout(), "%s/%s has a proxy\n", p.Namespace, p.Name)
	}
	switch {
	case len(pods) == 0:
		return nil
	case o.force || o.dryRun:
		cli.Note(cmd, "pods with a proxy: %d; once the control plane is gone they get no certificates any more", len(pods))
		return nil
	}
	then := "outrider uninject -A removes the labels that request injection, and makes these pods again; or --force"
	if others > 0 {
		then = "label their namespaces with the revision that stays, and recreate the pods (docs/upgrade.md); or --force"
	}
	return &target.Refusal{Err: fmt.Errorf("pods with a proxy: %d; nothing was removed", len(pods)), Then: then}
}
