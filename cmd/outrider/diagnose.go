package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/follow"
	"outrider.dev/internal/doctor/diagnose/groups"
	"outrider.dev/internal/doctor/diagnose/page"
	"outrider.dev/internal/doctor/diagnose/phases"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/cluster"
	"outrider.dev/internal/doctor/evidence/gather"
)

type diagnoseOptions struct {
	target.Pods
	secrets bool
	watch   bool
	slow    time.Duration
	page    page.Options
}

const diagnoseExamples = `  # what happened to a pod, why, and what fixes it
  outrider diagnose web-5d9c7b6f4d-x2x7k -n shop

  # the pods of a workload, or of a namespace: which have the same cause, since when, and what changed before
  outrider diagnose deploy/web -n shop
  outrider diagnose -n shop -l app=web

  # report the races of a roll-out as they happen, until it is complete
  outrider diagnose deploy/web -n shop --watch

  # to paste into a ticket; a page with the timelines of a workload's pods
  outrider diagnose web-5d9c7b6f4d-x2x7k -n shop -o md
  outrider diagnose deploy/web -n shop -o html > web.html

  # all pods by time to ready, and what delayed them
  outrider diagnose -A --all
  outrider diagnose -A --all -o html > fleet.html

  # without a cluster: pod.yaml, app.log, app.previous.log, events.yaml of a folder, or an archive
  outrider diagnose -f incident/
  outrider bug-report && outrider diagnose -f outrider-bug-report.tar.gz`

func newDiagnose() *cobra.Command {
	o := &diagnoseOptions{}
	cmd := &cobra.Command{
		Use:   "diagnose [POD|KIND/NAME]...",
		Short: "find out what happened to a pod, why, and what fixes it",
		Long: `Reads all evidence about a pod: its status, logs (also of the previous run), events, owner, and the
journal of Outrider's agent. Prints in one sentence what happened, then when, the evidence, how
certain the diagnosis is, what contradicts it, and the patch that fixes it. The pod may belong to any
mesh, or to none; Outrider need not be installed, and nothing is changed.

Of several pods it says which have the same cause, since when, what they have in common, and what
changed before (revision, image, ConfigMap, Secret), and then shows one pod of each cause.

Missing evidence makes a diagnosis less certain. If two causes fit, the diagnosis is undecided, and
the command that would decide is printed. What looks like a secret is masked.

With --watch a line is printed when a pod becomes ready, restarts, fails, or is not ready after --slow.
The command ends when the roll-out of the given workload is complete, without a workload with Ctrl-C.

Exit status: 0 if nothing is wrong, 1 if a cause was found or is undecided, 2 if there is no evidence.`,
		Example: diagnoseExamples,
		RunE:    o.run,
	}
	fs := cmd.Flags()
	o.Add(cmd)
	fs.StringArrayVarP(&o.Files, "filename", "f", nil, "file, folder or archive (tar, tar.gz) with evidence; '-' is standard input; may be repeated")
	fs.BoolVar(&o.page.Fleet, "all", false, "print the causes, then one line per pod, the slowest to get ready first")
	fs.BoolVar(&o.watch, "watch", false, "follow a roll-out: print a line for each change; with -o json an object for each")
	fs.BoolVar(&o.secrets, "show-secrets", false, "do not mask what looks like a secret")
	fs.DurationVar(&o.slow, "slow", phases.SlowStart, "a start that takes longer than this is a finding")
	cli.CompleteFiles(cmd, "filename", "yaml", "yml", "json", "log", "tar", "gz", "tgz")
	cli.Choice(cmd, &o.page.Format, "output", "o", "how to print", page.Formats...)
	return cmd
}

// check returns an error if flags or names are invalid or contradict each other.
func (o *diagnoseOptions) check(cmd *cobra.Command, names []string) error {
	if err := o.page.Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	switch {
	case o.slow <= 0:
		return &cli.UsageError{Err: fmt.Errorf("--slow: %s is no time that a start can take; write it like 30s", o.slow)}
	case o.watch && (len(o.Files) > 0 || len(names) > 1 || o.page.Fleet || o.page.Format != "text" && o.page.Format != "json"):
		return &cli.UsageError{Err: errors.New("--watch follows one workload or pod, or those of -n, -l or -A, and prints text or json"), Hint: "leave out -f, --all, more names, and other formats"}
	}
	return o.CheckNames(cmd, names, cmd.Flags().Changed("namespace"), "name one, or select some with -n, -l or -A, or give evidence with -f")
}

func (o *diagnoseOptions) run(cmd *cobra.Command, names []string) error {
	if err := o.check(cmd, names); err != nil {
		return err
	}
	if o.watch {
		return o.follow(cmd, names)
	}
	set, err := o.evidence(cmd, names)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	options := diagnose.Options{ShowSecrets: o.secrets}
	if cmd.Flags().Changed("slow") {
		options.Slow = o.slow
	}
	reports, err := groups.Diagnose(cmd.Context(), set, options)
	if err != nil {
		return err
	}
	wrong := slices.ContainsFunc(reports, func(r result.Report) bool { return !r.Verdict.Well() })
	for _, line := range set.Left() {
		cli.Note(cmd, "%s", line)
	}
	terminal := cli.TerminalOf(cmd.OutOrStdout())
	o.page.Columns, o.page.Colour = cmp.Or(terminal.Columns, 100), terminal.Colour
	if err := page.Write(cmd.OutOrStdout(), reports, o.page); err != nil {
		return err
	}
	if wrong {
		return &cli.ExitError{Status: cli.Failed}
	}
	return nil
}

func (o *diagnoseOptions) evidence(cmd *cobra.Command, names []string) (*evidence.Set, error) {
	if len(o.Files) > 0 {
		return gather.Read(cmd.Context(), gather.Options{Stdin: cmd.InOrStdin()}, o.Files...)
	}
	access, namespace, err := o.cluster(cmd)
	if err != nil {
		return nil, err
	}
	return gather.Live(cmd.Context(), access, cluster.Wanted{Namespace: namespace, Names: names, Selector: o.Labels})
}

func (o *diagnoseOptions) cluster(cmd *cobra.Command) (c cluster.Access, namespace string, err error) {
	client, namespace, err := o.Connect(cmd)
	if err != nil {
		return c, "", err
	}
	return cluster.Access{Core: client.Core, Forward: client.Forward}, namespace, nil
}

func (o *diagnoseOptions) follow(cmd *cobra.Command, names []string) error {
	access, namespace, err := o.cluster(cmd)
	if err != nil {
		return err
	}
	ctx, stop := target.Interruptible(cmd)
	defer stop()
	progress := cli.NewProgress(cmd.ErrOrStderr())
	options := follow.Options{Namespace: namespace, Name: strings.Join(names, ""), Selector: o.Labels, ShowSecrets: o.secrets, Slow: o.slow}
	if cli.TerminalOf(cmd.ErrOrStderr()).Colour {
		options.Waits = func(text string) { progress.Wait("%s", text) }
	}
	found, err := follow.Follow(ctx, access, options, func(l follow.Line) error {
		progress.End()
		return l.Write(cmd.OutOrStdout(), o.page.Format == "json")
	})
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	if status := found.Status(); status != cli.OK {
		return &cli.ExitError{Status: status}
	}
	return nil
}
