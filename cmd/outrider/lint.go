package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/lint"
	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/visible"
	"outrider.dev/startup"
)

type lintOptions struct {
	files     []string
	namespace string
	context   string // kubectl's
	output    string
	severity  string
	failOn    string
	only      []string
	skip      []string
	kube      kubeVersion
	injected  bool
	fix       bool
	diff      bool
	write     bool
	list      bool
	explain   string
}

var lintOutputs = []string{"text", "json", "sarif"}

const lintExamples = `  # what will go wrong with the pods of this Deployment, and the command that puts it right
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

  # what a code stands for
  outrider lint --explain hold-fails-open`

func newLint() *cobra.Command {
	o := &lintOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "lint -f FILE|-n NAMESPACE",
		Short: "find what makes pods start or stop with a race, or not at all, and fix it",
		Long: `Reads manifests and says what will go wrong when their pods start and stop: no order while
traffic is captured, a hold that fails open, work-arounds from before meshes could order
containers, deadlocks, Jobs that never end, grace periods that are too short, annotations
that do nothing. Each finding has a stable code, its evidence in your file, why it matters,
and a command that puts it right or says more.

Without a file, -n reads a namespace of a cluster by kubectl: its context, its credentials, and
nothing that it may not read. Nothing is changed.

All files are looked at together: the labels of a Namespace in one count for the pods in
another. With --fix the corrected manifests are printed; --diff prints the difference, and
--write changes the files. Only what a fix needs is touched.

The exit status is 1 if there are findings of --fail-on or worse (after --fix: if any are
left), 2 if the input cannot be used.`,
		Example: lintExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	inputFlags(cmd, &o.files, &o.output, lintOutputs)
	fs := cmd.Flags()
	fs.Lookup("filename").Usage = "file or folder with manifests, YAML or JSON; '-' is standard input; may be repeated"
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of objects that do not say theirs; without a file: the namespace of the cluster to look at")
	fs.StringVar(&o.context, "context", "", "kubectl's context to read a namespace by; default: the current one")
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	fs.BoolVar(&o.injected, "injected", false, "suppose that all pods are injected, whatever the labels in the files say")
	fs.StringVar(&o.severity, "severity", "note", "the least that is shown: note, warning, error")
	fs.StringVar(&o.failOn, "fail-on", "warning", "the least that fails: note, warning, error")
	fs.StringSliceVar(&o.only, "only", nil, "codes to look for, with commas between")
	fs.StringSliceVar(&o.skip, "skip", nil, "codes to pass over, with commas between")
	fs.BoolVar(&o.fix, "fix", false, "print the corrected manifests")
	fs.BoolVar(&o.diff, "diff", false, "with --fix: print what would change")
	fs.BoolVar(&o.write, "write", false, "with --fix: change the files")
	fs.BoolVar(&o.list, "list", false, "list the codes")
	fs.StringVar(&o.explain, "explain", "", "say what a code stands for")
	lintCompletion(cmd)
	return cmd
}

// lintCompletion: none of it can fail for a flag that exists.
func lintCompletion(cmd *cobra.Command) {
	var codes, severities []string
	for _, k := range lint.Kinds() {
		codes = append(codes, string(k.Code)+"\t"+k.Title)
	}
	for _, s := range finding.Severities {
		severities = append(severities, string(s))
	}
	for flag, words := range map[string][]string{"only": codes, "skip": codes, "explain": codes, "severity": severities, "fail-on": severities} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (o *lintOptions) run(cmd *cobra.Command) error {
	switch {
	case o.list:
		return o.printKinds(cmd.OutOrStdout())
	case o.explain != "":
		return explainKind(cmd.OutOrStdout(), o.explain)
	}
	if err := o.check(); err != nil {
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
		return &cli.UsageError{Err: err, Hint: lintHint(err)}
	}
	if err := o.print(cmd, report); err != nil {
		return err
	}
	return o.verdict(report)
}

// fromCluster says whether a namespace is looked at, and not files.
func (o *lintOptions) fromCluster() bool { return len(o.files) == 0 && o.namespace != "" }

// inputs is what is looked at, as a command of a remedy names it.
func (o *lintOptions) inputs() []string {
	if o.fromCluster() {
		return []string{lint.Cluster}
	}
	return o.files
}

func (o *lintOptions) read(cmd *cobra.Command) ([]lint.File, error) {
	if o.fromCluster() {
		files, note, err := o.clusterFiles(cmd.Context())
		if note != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "outrider: note: %s\n", note)
		}
		return files, err
	}
	files, err := lintFiles(cmd, o.files)
	if err != nil {
		return nil, &cli.UsageError{Err: err, Hint: lintHint(err)}
	}
	return files, nil
}

// check refuses what cannot be meant.
func (o *lintOptions) check() error {
	if o.context != "" && !o.fromCluster() {
		return &cli.UsageError{Err: errors.New("--context says how a namespace is read, and files are given"), Hint: "leave it away, or give -n NAMESPACE and no file"}
	}
	if err := checkInput(o.inputs(), o.output, lintOutputs); err != nil {
		return err
	}
	for flag, word := range map[string]string{"severity": o.severity, "fail-on": o.failOn} {
		if _, err := finding.ParseSeverity(word); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--%s: %w", flag, err)}
		}
	}
	for _, code := range slices.Concat(o.only, o.skip) {
		if _, err := lintKind(code); err != nil {
			return err
		}
	}
	switch {
	case (o.diff || o.write) && !o.fix:
		return &cli.UsageError{Err: errors.New("--diff and --write say what becomes of fixes"), Hint: "add --fix"}
	case o.diff && o.write:
		return &cli.UsageError{Err: errors.New("--diff changes nothing, --write does"), Hint: "give one of the two"}
	case o.fix && o.output != "text":
		return &cli.UsageError{Err: errors.New("--fix prints manifests, not findings"), Hint: "leave --fix away: -o " + o.output + " has the fixes in it"}
	case o.write && o.fromCluster():
		return &cli.UsageError{Err: errors.New("--write changes files, and no cluster"), Hint: fmt.Sprintf("outrider lint -n %s --fix | kubectl apply -f -", o.namespace)}
	case o.write && slices.Contains(o.files, "-"):
		return &cli.UsageError{Err: errors.New("--write cannot write standard input"), Hint: "leave --write away: --fix prints the corrected manifests"}
	}
	return nil
}

func (o *lintOptions) options() lint.Options {
	return lint.Options{Kubernetes: startup.Kubernetes(o.kube), Namespace: o.namespace, Injected: o.injected, Inputs: o.inputs()}
}

// lint is a look with what the flags leave out left out.
func (o *lintOptions) lint(files []lint.File) (lint.Report, error) {
	report, err := lint.Lint(files, o.options())
	if err != nil {
		return report, err
	}
	if report.Pods+report.Services == 0 {
		where := strings.Join(o.files, ", ")
		if o.fromCluster() {
			where = "namespace " + o.namespace
		}
		return report, fmt.Errorf("%s: no pod, no pod template and no service to look at", where)
	}
	report.Findings = slices.DeleteFunc(report.Findings, func(f finding.Finding) bool { return !o.wants(f) })
	return report, nil
}

func (o *lintOptions) wants(f finding.Finding) bool {
	code := string(f.Code)
	return f.Severity.AtLeast(finding.Severity(o.severity)) && (len(o.only) == 0 || slices.Contains(o.only, code)) && !slices.Contains(o.skip, code)
}

func (o *lintOptions) print(cmd *cobra.Command, r lint.Report) error {
	w := cmd.OutOrStdout()
	switch o.output {
	case "json":
		return finding.WriteJSON(w, r.Findings)
	case "sarif":
		return finding.WriteSARIF(w, finding.Tool{Name: "outrider lint", Version: cli.Version(), Pages: docPages, Kinds: lint.Kinds()}, r.Findings)
	}
	if err := finding.WriteText(visible.Writer{W: w}, r.Findings, isTerminal(w)); err != nil {
		return err
	}
	return shown(w, o.summary(r))
}

const docPages = "https://outrider.dev/docs/"

// summary is the last line: how many, of what, and how many of them can be fixed.
func (o *lintOptions) summary(r lint.Report) string {
	fixes := 0
	for _, f := range r.Findings {
		if f.Fix != nil {
			fixes++
		}
	}
	text := fmt.Sprintf("%s in %s\n", finding.Summary(r.Findings), counted(r))
	if len(r.Findings) > 0 {
		text = "\n" + text
	}
	if fixes > 0 {
		do := "--fix --write"
		if o.fromCluster() {
			do = "--fix | kubectl apply -f -"
		}
		text += fmt.Sprintf("%d can be fixed by command: add --fix --diff to see how, %s to do it\n", fixes, do)
	}
	return text
}

func counted(r lint.Report) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{r.Pods, "pod"}, {r.Services, "service"}} {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.what)
		case c.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", c.n, c.what))
		}
	}
	return strings.Join(parts, " and ")
}

// verdict is the exit status. What was found is printed already.
func (o *lintOptions) verdict(r lint.Report) error {
	if len(finding.Select(r.Findings, finding.Severity(o.failOn))) == 0 {
		return nil
	}
	return &cli.ExitError{Status: cli.Failed}
}

// printKinds is the list of codes.
func (o *lintOptions) printKinds(w io.Writer) error {
	if o.output == "json" {
		return cli.WriteJSON(w, lint.Kinds())
	}
	var b strings.Builder
	for _, k := range lint.Kinds() {
		fmt.Fprintf(&b, "%-24s %-8s %s\n", k.Code, k.Severity, k.Title)
	}
	return printed(w, b.String())
}

func lintKind(code string) (finding.Kind, error) {
	kinds := lint.Kinds()
	i := slices.IndexFunc(kinds, func(k finding.Kind) bool { return string(k.Code) == code })
	if i < 0 {
		return finding.Kind{}, &cli.UsageError{Err: fmt.Errorf("%q is no code", code), Hint: "outrider lint --list"}
	}
	return kinds[i], nil
}

func explainKind(w io.Writer, code string) error {
	k, err := lintKind(code)
	if err != nil {
		return err
	}
	p := printer{colour: isTerminal(w)}
	p.line("%s  %s", p.paint(bold, string(k.Code)), p.paint(faint, string(k.Severity)))
	p.line("%s.\n", strings.ToUpper(k.Title[:1])+k.Title[1:])
	p.line("%s\n", folded(k.Explanation))
	p.line("More: docs/%s", k.Doc)
	return shown(w, p.String())
}

// folded breaks the lines of paragraphs.
func folded(text string) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString("\n\n")
		}
		at := 0
		for j, w := range strings.Fields(paragraph) {
			switch {
			case j == 0:
			case at+1+len(w) > width:
				b.WriteByte('\n')
				at = 0
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(w)
			at += len(w)
		}
	}
	return b.String()
}

// lintHint helps where a file is no manifest.
func lintHint(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ""
	case strings.Contains(err.Error(), "{{") || strings.Contains(err.Error(), "invalid map key") || strings.Contains(err.Error(), "flow node"):
		return "if this is a chart's template: helm template CHART | outrider lint -f -"
	}
	return ""
}
