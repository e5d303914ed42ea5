package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/startup"
)

type planOptions struct {
	podInput
	advise bool
}

const planExamples = `  # which container waits for which in this Deployment, by which mechanism, and what it does not guarantee
  outrider plan -f deployment.yaml

  # a pod of the cluster, with everything that was injected
  kubectl get pod shop-1 -o yaml | outrider plan -f -

  # which mechanism would be best for this pod on Kubernetes 1.34, with measured costs
  outrider plan -f deployment.yaml --advise --kube 1.34

  # a picture
  outrider plan -f deployment.yaml -o svg > plan.svg`

func newPlan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "print which container waits for which, by which mechanism, and what it does not guarantee",
		Long: `Reads pods, and objects that have a pod template, and prints the start graph of each. Its edges
come from the annotation outrider.dev/depends-on and from every ordering that the pod already has:
from Outrider, Istio, Linkerd, Kuma or Tekton, or written by hand as a loop or a sleep. Each edge
is printed with its mechanism, why it was chosen, and what it does not guarantee.

The exit status is 1 if a plan cannot work, 2 if the input is unusable.`,
		Example: planExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.podInput.flags(cmd, view.PlanOutputs)
	cmd.Flags().BoolVar(&o.advise, "advise", false, "compare the mechanisms for each pod, with the cost of each")
	return cmd
}

func (o *planOptions) run(cmd *cobra.Command) error {
	reports, err := o.reports(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if err := view.Plans(w, cli.TerminalOf(w), o.output, reports); err != nil {
		return err
	}
	return cli.FirstError(reports)
}

func (o *planOptions) reports(cmd *cobra.Command) ([]plan.Report, error) {
	objects, err := o.objects(cmd)
	if err != nil {
		return nil, err
	}
	return ofEach(objects, func(object podfile.Object) (plan.Report, error) {
		r, err := plan.New(object, startup.Kubernetes(o.kube), o.advise)
		if err == nil && !o.on && willBeInjected(r) {
			adds := "decides where " + contract.ProxyContainer + " stands, and may add edges"
			if r.Pod.Annotations[contract.Proxy] == "none" {
				adds = "may add edges, and a preStop hook that keeps the proxy"
			}
			r.Notes = append(slices.Clip(r.Notes), "injection "+adds+": --injected shows the plan of the pod that will run")
		}
		return r, err
	})
}

// willBeInjected reports whether a pod requests injection by its labels and has no proxy yet, or waits for a proxy
// that only injection adds.
func willBeInjected(r plan.Report) bool {
	namespace := inject.Namespace{Name: cmp.Or(r.Namespace, "default")}
	requests := inject.Decide(&r.Pod, namespace, inject.Options{}).Code == verdict.Injected
	_, has := startup.Plan{Containers: r.Containers}.Find(contract.ProxyContainer)
	_, done := r.Pod.Annotations[contract.Status] // beside another mesh's proxy: there is none of ours
	return slices.Contains(r.Expected, contract.ProxyContainer) || requests && has < 0 && !done
}
