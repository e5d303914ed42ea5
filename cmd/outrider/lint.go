package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/view"
	"outrider.dev/cmd/outrider/internal/codes"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/internal/doctor/lint/source"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/startup"
)

type lintOptions struct {
	input
	cluster  *kubeclient.Flags
	failOn   string
	filter   lint.Filter
	injected bool
	fix      bool
	diff     bool
	write    bool
	list     bool
	explain  string
}

const lintExamples = `  # what will go wrong with the pods of this Deployment, and the command that fixes it
  outrider lint -f deployment.yaml

  # a folder, as a check before merging; warnings do not fail it
  outrider lint -f deploy/ --fail-on error

  # see the fixes, then write them; comments and order stay
  outrider lint -f deploy/ --fix --diff
  outrider lint -f deploy/ --fix --write

  # what is in a cluster, and the corrected objects
  outrider lint -n shop
  outrider lint -n shop --fix | kubectl apply -f -

  # for code scanning
  outrider lint -f deploy/ -o sarif > outrider.sarif

  # what a code means
  outrider lint --explain hold-fails-open`

const listCodes = "outrider lint --list"

func newLint() *cobra.Command {
	o := &lintOptions{failOn: "warning", cluster: kubeclient.NewFlags("")}
	cmd := &cobra.Command{
		Use:   "lint -f FILE|-n NAMESPACE",
		Short: "find what makes pods start or stop with a race, or not at all, and fix it",
		Long: `Reads manifests and reports what will go wrong when their pods start and stop: no order while
traffic is captured, a hold that fails open, work-arounds from before meshes could order
containers, deadlocks, Jobs that never end, grace periods that are too short, annotations
without effect. Each finding has a stable code, the place in your file, why it matters, and a
command that fixes or explains it.

Without a file, -n reads a namespace of a cluster with kubectl, and with your context, credentials
and permissions. Nothing is changed.

All files are read together: the labels of a Namespace in one file apply to the pods in another.
With --fix the corrected manifests are printed; --diff prints the difference, and --write changes
the files. Everything that a fix does not need to change stays.

The exit status is 1 if there are findings of --fail-on or worse (after --fix: if any are
left), 2 if the input is unusable.`,
		Example: lintExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.input.flags(cmd, view.LintOutputs)
	fs := cmd.Flags()
	o.cluster.Add(fs, "namespace of objects that do not name one; without a file: the namespace of the cluster to read")
	fs.BoolVar(&o.injected, "injected", false, "assume that all pods are injected, whatever the labels in the files")
	var codes []string
	for _, k := range kinds.All() {
		codes = append(codes, string(k.Code)+"\t"+k.Title)
	}
	cli.Choice(cmd, (*string)(&o.filter.Severity), "severity", "", "show findings of at least this severity", "note", "warning", "error")
	cli.Choice(cmd, &o.failOn, "fail-on", "", "exit with 1 on findings of at least this severity", "note", "warning", "error")
	fs.StringSliceVar(&o.filter.Only, "only", nil, "report only these codes, separated by commas")
	fs.StringSliceVar(&o.filter.Skip, "skip", nil, "do not report these codes, separated by commas")
	fs.BoolVar(&o.fix, "fix", false, "print the corrected manifests")
	fs.BoolVar(&o.diff, "diff", false, "with --fix: print what would change")
	fs.BoolVar(&o.write, "write", false, "with --fix: change the files")
	fs.BoolVar(&o.list, "list", false, "list the codes")
	fs.StringVar(&o.explain, "explain", "", "explain a code")
	for _, flag := range []string{"only", "skip", "explain"} {
		cli.Complete(cmd, flag, codes...)
	}
	return cmd
}

func (o *lintOptions) run(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	switch {
	case o.list:
		return view.Kinds(w, o.output)
	case o.explain != "":
		c, note, err := codes.Find(o.explain)
		if err != nil {
			return &cli.UsageError{Err: err, Hint: listCodes}
		}
		cli.Note(cmd, "%s", note)
		return view.Code(w, cli.TerminalOf(w), "text", c)
	}
	if err := o.check(cmd); err != nil {
		return err
	}
	files, err := o.read(cmd)
	if err != nil {
		return err
	}
	if o.fix {
		return o.runFix(cmd, files)
	}
	report, err := o.lint(files)
	if err != nil {
		return &cli.UsageError{Err: err, Hint: source.Hint(err)}
	}
	fixCommand := map[bool]string{true: "--fix | kubectl apply -f -", false: "--fix --write"}[o.fromCluster()]
	if err := view.Findings(w, cli.TerminalOf(w), o.output, report, fixCommand); err != nil {
		return err
	}
	if o.output != "text" {
		cli.Note(cmd, "%s", report.NotChecked())
	}
	return o.verdict(report)
}

// fromCluster reports whether lint reads a namespace instead of files.
func (o *lintOptions) fromCluster() bool { return len(o.files) == 0 && *o.cluster.Namespace != "" }

// inputs returns the files, or [lint.Cluster], for the commands that remedies contain.
func (o *lintOptions) inputs() []string {
	if o.fromCluster() {
		return []string{lint.Cluster}
	}
	return o.files
}

func (o *lintOptions) read(cmd *cobra.Command) ([]lint.File, error) {
	if o.fromCluster() {
		files, note, err := source.Namespace(cmd.Context(), o.cluster.Kubectl(), *o.cluster.Namespace)
		cli.Note(cmd, "%s", note)
		var access *source.AccessError
		if errors.As(err, &access) {
			err = &cli.UsageError{Err: err, Hint: access.Help}
		}
		return files, err
	}
	files, skipped, err := source.Files(o.files, func(file string) (string, []byte, error) { return cli.Read(cmd, file) })
	if err != nil {
		return nil, &cli.UsageError{Err: err, Hint: source.Hint(err)}
	}
	for _, file := range skipped {
		cli.Note(cmd, "%s is no Kubernetes object; it is ignored", file)
	}
	return files, nil
}

// check returns an error if a flag is invalid, or if flags contradict each other.
func (o *lintOptions) check(cmd *cobra.Command) error {
	notes, err := o.filter.Check()
	if err != nil {
		return &cli.UsageError{Err: err, Hint: listCodes}
	}
	for _, note := range notes {
		cli.Note(cmd, "%s", note)
	}
	for _, c := range []struct {
		wrong      bool
		what, hint string
	}{
		{len(o.cluster.Kubectl()) > 0 && !o.fromCluster(), "--context, --kubeconfig and --as are for reading a namespace, and files are given", "remove it, or give -n NAMESPACE and no file"},
		{len(o.inputs()) == 0, errNothing.Error(), errNothing.Hint},
		{(o.diff || o.write) && !o.fix, "--diff and --write need --fix", "add --fix"},
		{o.diff && o.write, "--diff and --write contradict each other: --diff changes nothing", "give one of the two"},
		{o.fix && o.output != "text", "--fix prints manifests, not findings", "remove --fix: -o " + o.output + " contains the fixes"},
		{o.write && o.fromCluster(), "--write changes files, and no cluster", fmt.Sprintf("outrider lint -n %s --fix | kubectl apply -f -", *o.cluster.Namespace)},
		{o.write && slices.Contains(o.files, "-"), "--write cannot write standard input", "remove --write: --fix prints the corrected manifests"},
	} {
		if c.wrong {
			return &cli.UsageError{Err: errors.New(c.what), Hint: c.hint}
		}
	}
	return nil
}

func (o *lintOptions) options() lint.Options {
	return lint.Options{Kubernetes: startup.Kubernetes(o.kube), Namespace: *o.cluster.Namespace, Injected: o.injected, Inputs: o.inputs()}
}

// lint returns the findings that the flags select.
func (o *lintOptions) lint(files []lint.File) (lint.Report, error) {
	report, err := lint.Lint(files, o.options())
	if err != nil {
		return report, err
	}
	if report.Pods+report.Services == 0 && o.fromCluster() {
		return report, fmt.Errorf("namespace %s: no pod, no pod template and no service found", *o.cluster.Namespace)
	}
	report.Findings = slices.DeleteFunc(report.Findings, func(f finding.Finding) bool { return !o.filter.Selects(f) })
	return report, nil
}

// verdict returns an error without a message, for the exit status, if there are findings with the severity of
// --fail-on or a worse one.
func (o *lintOptions) verdict(r lint.Report) error {
	if len(finding.Select(r.Findings, finding.Severity(o.failOn))) == 0 {
		return nil
	}
	return &cli.ExitError{Status: cli.Failed}
}

// runFix prints or writes the fixed files. On standard error it prints the fixed findings, and the number of findings
// that are left.
func (o *lintOptions) runFix(cmd *cobra.Command, files []lint.File) error {
	fix, err := lint.Fix(files, o.options(), o.filter.Selects)
	if err != nil {
		return &cli.UsageError{Err: err, Hint: source.Hint(err)}
	}
	fixed := "would fix"
	switch {
	case o.write:
		fixed = "fixed"
		err = source.Write(fix.Changed)
	case o.diff:
		_, err = cmd.OutOrStdout().Write(fix.Diff())
	default:
		_, err = cmd.OutOrStdout().Write(offline.Join(fix.Texts()))
	}
	if err != nil {
		return err
	}
	left, err := o.lint(fix.Files)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	for _, f := range fix.Findings {
		fmt.Fprintf(cmd.ErrOrStderr(), "outrider: %s %s: %s [%s]\n", fixed, f.File, f.Title, f.Code)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "outrider: left: %s\n", view.FindingsSummary(left))
	cli.Note(cmd, "%s", left.NotChecked())
	return o.verdict(left)
}
