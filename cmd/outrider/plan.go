package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/internal/visible"
	"outrider.dev/startup"
)

type planOptions struct {
	files  []string
	output string
	kube   kubeVersion
	advise bool
}

var planOutputs = []string{"text", "json", "yaml", "dot", "svg"}

const planExamples = `  # who waits for whom in this Deployment, by what, and what that does not guarantee
  outrider plan -f deployment.yaml

  # what is really in the cluster, injected by whomever
  kubectl get pod shop-1 -o yaml | outrider plan -f -

  # which mechanism would be best for this pod on Kubernetes 1.34, with measured costs
  outrider plan -f deployment.yaml --advise --kube 1.34

  # a picture
  outrider plan -f deployment.yaml -o svg > plan.svg`

func newPlan() *cobra.Command {
	o := &planOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "print who waits for whom in a pod, by what, and what that does not guarantee",
		Long: `Reads pods, and objects that have a pod template, and prints the start graph of
each: what the annotation outrider.dev/depends-on asks for, and every ordering that is
in the pod already, put there by Outrider, Istio, Linkerd, Kuma, Tekton, or a person with
a loop or a sleep. Each edge comes with its mechanism, why it was chosen, and what
it does not guarantee.

The exit status is 1 if a plan cannot work, 2 if the input cannot be used.`,
		Example: planExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	inputFlags(cmd, &o.files, &o.output, planOutputs)
	fs := cmd.Flags()
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	fs.BoolVar(&o.advise, "advise", false, "compare the mechanisms for each pod, with what each costs")
	return cmd
}

// A kubeVersion is a flag like 1.34.
type kubeVersion startup.Kubernetes

func (k *kubeVersion) String() string { return fmt.Sprintf("1.%d", int(*k)) }

// Type is the word for the value in a usage text.
func (k *kubeVersion) Type() string { return "version" }

// Set reads 1.34, v1.34.4 or 1.34.4+k3s1; and 1.34+ or 1.34-gke.1, as managed clusters say.
func (k *kubeVersion) Set(s string) error {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) >= 2 && parts[0] == "1" {
		minor, _, _ := strings.Cut(strings.Replace(parts[1], "-", "+", 1), "+")
		if n, err := strconv.Atoi(minor); err == nil && n >= 18 && n < 100 {
			*k = kubeVersion(n)
			return nil
		}
	}
	return fmt.Errorf("--kube=%q: write it like 1.34; 1.18 is the oldest", s)
}

func (o *planOptions) run(cmd *cobra.Command) error {
	if err := checkInput(o.files, o.output, planOutputs); err != nil {
		return err
	}
	var plans []planned
	for _, file := range o.files {
		found, err := o.read(cmd, file)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		plans = append(plans, found...)
	}
	if err := o.print(cmd.OutOrStdout(), plans); err != nil {
		return err
	}
	return broken(plans)
}

// read returns the plans of the pods in one file.
func (o *planOptions) read(cmd *cobra.Command, file string) ([]planned, error) {
	objects, err := readObjects(cmd, file)
	if err != nil {
		return nil, err
	}
	var out []planned
	for _, object := range objects {
		p, err := newPlanned(object, startup.Kubernetes(o.kube), o.advise)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// readText returns a file as text, and what to call it; "-" is standard input.
func readText(cmd *cobra.Command, file string) (name string, data []byte, err error) {
	if file != "-" {
		data, err = os.ReadFile(file)
		return file, data, err
	}
	name = "standard input"
	if data, err = io.ReadAll(cmd.InOrStdin()); err != nil {
		err = fmt.Errorf("reading %s: %w", name, err)
	}
	return name, data, err
}

// readObjects returns the pods, and what has a pod template, of a file with
// manifests.
func readObjects(cmd *cobra.Command, file string) ([]podspec.Object, error) {
	name, data, err := readText(cmd, file)
	if err != nil {
		return nil, err
	}
	objects, others, err := podspec.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s has no pod and no pod template%s", name, list(": found ", others))
	}
	for _, object := range objects {
		for _, field := range object.Unknown {
			fmt.Fprintf(cmd.ErrOrStderr(), "outrider: note: %s: %s: %s is not a field that this version knows; it is passed over\n", name, object, field)
		}
	}
	return objects, nil
}

// checkInput refuses what all commands that read manifests refuse.
func checkInput(files []string, output string, outputs []string) error {
	if len(files) == 0 {
		return &cli.UsageError{Err: errors.New("nothing to read"), Hint: "give -f FILE, or -f - for standard input"}
	}
	if !slices.Contains(outputs, output) {
		return &cli.UsageError{Err: fmt.Errorf("--output=%q: one of %s", output, strings.Join(outputs, ", "))}
	}
	return nil
}

// inputFlags are the flags of all commands that read manifests, with what a shell
// completes.
func inputFlags(cmd *cobra.Command, files *[]string, output *string, outputs []string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(files, "filename", "f", nil, "file with manifests, YAML or JSON; '-' is standard input; may be repeated")
	fs.StringVarP(output, "output", "o", "text", "how to print: "+strings.Join(outputs, ", "))
	// Both fail for a flag that does not exist only.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

func (o *planOptions) print(w io.Writer, plans []planned) error {
	switch o.output {
	case "json":
		return cli.WriteJSON(w, plans)
	case "yaml":
		text, err := yaml.Marshal(plans)
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--output=yaml: %w", err), Hint: "-o json writes every text"}
		}
		_, err = w.Write(text)
		return err
	case "dot":
		return printed(w, planDot(plans))
	case "svg":
		return printed(w, planSVG(plans))
	}
	p := printer{colour: isTerminal(w)}
	for i, plan := range plans {
		if i > 0 {
			p.line("")
		}
		p.plan(plan)
	}
	return shown(w, p.String())
}

func printed(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// shown prints for people: what manifests hide in names and commands is seen, and does
// nothing to a terminal.
func shown(w io.Writer, text string) error { return printed(w, visible.Text(text)) }

// broken is the error of plans that cannot work; nil if all can.
func broken(plans []planned) error {
	for _, p := range plans {
		for _, f := range p.Findings {
			if f.Level == startup.Error {
				return fmt.Errorf("%s: document %d: %s: %s%s", p.File, p.Document, p.Object, f.Message, list("\noutrider: hint: ", []string{f.Remedy}))
			}
		}
	}
	return nil
}

// isTerminal says whether w is one that shows colours.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// list is the items with commas between, after a prefix; nothing if there are none.
func list(prefix string, items []string) string {
	items = slices.DeleteFunc(slices.Clone(items), func(s string) bool { return s == "" })
	if len(items) == 0 {
		return ""
	}
	return prefix + strings.Join(items, ", ")
}
