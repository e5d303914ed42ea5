package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/internal/doctor/verify"
)

type verifyOptions struct {
	podInput
	promise string
	only    []string
	bound   verify.Bound
}

// answerTime is the default time limit of the search for one pod.
const answerTime = 10 * time.Second

const verifyExamples = `  # does anything break the order of this pod, in any run with up to 3 faults?
  outrider verify -f deployment.yaml

  # does a container that crashes after all have started?
  outrider verify -f deployment.yaml --only crash --settled

  # is the order kept without any fault?
  outrider verify -f deployment.yaml --faults 0

  # in CI: starts only, with four faults, as JSON
  outrider verify -f deployment.yaml --promise starts --faults 4 -o json`

func newVerify() *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify -f FILE",
		Short: "try every run of a pod, with faults, and print the shortest that violates its plan",
		Long: `Tries every order in which events can reach the kubelet: starts, ends, health, hooks, time,
and faults at every step. If a run within the bounds violates the plan, the shortest one with
the fewest faults is printed.

Two promises are verified. "starts": no container runs before those it waits for, at any
start. "stops": wherever the pod is deleted, it stops in the reverse order.

The faults that --only takes:

` + indented(scenario.FaultForms()) + `
An end with exit code 0 counts as a crash if the container is a mesh's proxy, is always restarted, or
others need it healthy. "outrider simulate --replay" runs a counterexample of the JSON step by step.

If a bound such as --time ends the search, the result is "bounded": it says by which bound, and up
to how many faults every run was tried. With more --time and --states, or fewer --faults, the search
is complete.

Exit status: 0 if all promises hold and the search within the faults was complete, 1 if a run breaks a
promise, 2 if the input is unusable, 3 if the search is bounded: nothing was found, and nothing is proved.`,
		Example: verifyExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.podInput.flags(cmd, view.VerifyOutputs)
	fs := cmd.Flags()
	fs.IntVar(&o.bound.Faults, "faults", 3, "how many faults one run may have")
	fs.StringSliceVar(&o.only, "only", nil, "only these kinds of faults (default all)")
	fs.BoolVar(&o.bound.Settled, "settled", false, "no fault until every container has run once")
	cli.Choice(cmd, &o.promise, "promise", "", "what is verified", "both", "starts", "stops")
	fs.IntVar(&o.bound.States, "states", 1_000_000, "give up after so many states; a million of them take about 300 MB")
	fs.DurationVar(&o.bound.Time, "time", answerTime, "give up after that time, for each pod")
	cli.Complete(cmd, "only", scenario.FaultNames()...)
	return cmd
}

func (o *verifyOptions) run(cmd *cobra.Command) error {
	bound, err := scenario.NewBound(o.bound, o.only)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	pods, err := o.subjects(cmd)
	if err != nil {
		return err
	}
	// At Ctrl-C the results so far are printed.
	ctx, stop := target.Interruptible(cmd)
	defer stop()
	stderr := cmd.ErrOrStderr()
	var all []scenario.Verification
	for _, p := range pods {
		meter := view.NewMeter(stderr, cli.TerminalOf(stderr))
		v, err := p.Verify(ctx, scenario.Promises[o.promise], bound, func(promise string, now verify.Progress) {
			meter.Show(p.Object.String()+" "+promise, now)
		})
		meter.Clear()
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("%s: %w", p.Where(), err)}
		}
		all = append(all, v)
	}
	w := cmd.OutOrStdout()
	if err := view.Verifications(w, cli.TerminalOf(w), o.output, all); err != nil {
		return err
	}
	return scenario.VerifyError(all)
}
