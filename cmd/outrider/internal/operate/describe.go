package operate

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/replicas"
	"outrider.dev/internal/ops/report"
	"outrider.dev/startup"
)

type describeOptions struct {
	target.Pods
	controlPlane string
	kube         cli.KubeVersion
	output       string
}

const describeExamples = `  # was it injected, or why not; how does it start; what is captured; is its configuration current?
  outrider describe pod app-1 -n shop

  # all pods of an application
  outrider describe pod -n shop -l app=checkout

  # manifests, without a cluster
  outrider describe pod -f app.yaml`

func NewDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe", Short: "explain whether and how a pod was injected, and its present state"}
	o := &describeOptions{kube: 34}
	pod := &cobra.Command{
		Use:     "pod NAME...",
		Aliases: []string{"pods", "po"},
		Short:   "explain whether and how a pod was injected, and its present state",
		Long: `Prints whether a pod was injected, and which rule decided it; how its start is ordered, and why;
which connections are captured; its proxy's versions; and whether the proxy has the control plane's
current configuration. The rule is the one that applies now: labels and settings may have been
different when the pod was created.

With -f no cluster is contacted: pods and pod templates are described as they would be injected with
the defaults. The labels of a namespace are read from its document in the files.

Exit status: 0 if the pods are described, 1 if one cannot be read, 2 if the input is unusable.`,
		Example: describeExamples,
		RunE:    o.run,
	}
	fs := pod.Flags()
	o.Add(pod)
	fs.StringVar(&o.controlPlane, "control-plane-namespace", installation.Namespace, "namespace of the control plane")
	fs.StringArrayVarP(&o.Files, "filename", "f", nil, "file, folder or URL with manifests, YAML or JSON; '-' is standard input; may be repeated")
	fs.Var(&o.kube, "kube", "with -f: Kubernetes version of the nodes")
	cli.CompleteFiles(pod, "filename", "yaml", "yml", "json")
	cli.Choice(pod, &o.output, "output", "o", "how to print", "text", "json")
	cmd.AddCommand(pod)
	return cmd
}

func (o *describeOptions) run(cmd *cobra.Command, names []string) error {
	if err := o.CheckNames(cmd, names, false, "name one, or select some with -l or -A, or give manifests with -f"); err != nil {
		return err
	}
	mesh, subjects, err := o.read(cmd, names)
	if err != nil {
		return err
	}
	out := []report.Pod{}
	for _, s := range subjects {
		d, err := mesh.Describe(s)
		if err != nil {
			return err
		}
		out = append(out, d)
	}
	w := cmd.OutOrStdout()
	return view.Descriptions(w, cli.TerminalOf(w), o.output, out)
}

func (o *describeOptions) read(cmd *cobra.Command, names []string) (report.Mesh, []report.Subject, error) {
	if len(o.Files) > 0 {
		subjects, err := o.inFiles(cmd)
		return report.Offline(startup.Kubernetes(o.kube)), subjects, err
	}
	client, namespace, err := o.Connect(cmd)
	if err != nil {
		return report.Mesh{}, nil, err
	}
	set := replicas.In(client, o.controlPlane)
	defer set.Close()
	return report.InCluster(cmd.Context(), set, namespace, o.Labels, names)
}

func (o *describeOptions) inFiles(cmd *cobra.Command) ([]report.Subject, error) {
	files, err := cli.Expand(o.Files)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	var read report.Files
	if err := cli.ReadAll(cmd, files, read.Add); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	subjects := read.Subjects(cmp.Or(*o.Namespace, corev1.NamespaceDefault))
	if len(subjects) == 0 {
		return nil, &cli.UsageError{Err: errors.New("the files have no pod and no pod template")}
	}
	return subjects, nil
}
