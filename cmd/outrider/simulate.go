package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/internal/doctor/simulate"
)

type simulateOptions struct {
	podInput
	behaviour string
	with      []string
	replay    string
}

const simulateExamples = `  # what happens when this Deployment starts, if the proxy needs 3 s to be ready
  outrider simulate -f deployment.yaml --with 'istio-proxy: healthy after 3s'

  # and when the proxy crashes later, and the app calls it
  outrider simulate -f deployment.yaml --with 'istio-proxy: crashes after 20s' --with 'shop: calls istio-proxy every 1s'

  # how the pod stops
  outrider simulate -f deployment.yaml --with 'deleted at 30s' --with 'shop: stops after 4s'

  # a behaviour in a file, a page for a browser
  outrider simulate -f deployment.yaml --behaviour monday.txt -o html > monday.html

  # the run in which verify found a violation, step by step
  outrider verify -f deployment.yaml -o json > broken.json
  outrider simulate -f deployment.yaml --replay broken.json`

func newSimulate() *cobra.Command {
	o := &simulateOptions{}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE",
		Short: "simulate the start and stop of pods on a virtual clock, and check their plans",
		Long: `Simulates what the kubelet does with the pods of FILE, by the kubelet's own rules and on a
virtual clock: minutes of a pod take milliseconds, and the same input always gives the same
result. Prints a chart of the run, and each edge of the plan that was violated.

You describe how the containers behave in lines of text, with --with or in a file. A line is
about the pod or, if it begins with a name and a colon, about a container. Commas separate its
clauses, and # begins a comment:

  until 90s
  sandbox takes 300ms
  sandbox dies at 40s
  deleted at 60s
  kubernetes 1.34
  istio-proxy: image takes 2s, healthy after 1.5s
  shop: calls istio-proxy after 200ms or exits 1, stops after 3s

The clauses for a container; D is a time, N a number, NAME another container:

` + indented(simulate.Forms()) + fmt.Sprintf(`
Unless you set them, these are assumed, and printed: an init container completes after
%s, a mesh's proxy is healthy after %s, and the command of a Job completes after %s.
Everything else works at once, and runs for ever. What a hook waits for, and how long a command
or a preStop sleeps, is read from the manifest.

The exit status is 1 if an edge of a plan was violated, 2 if the input is unusable.`, scenario.InitTakes, scenario.ProxyTakes, scenario.JobTakes),
		Example: simulateExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.podInput.flags(cmd, view.SimulateOutputs)
	cmd.Flags().StringVarP(&o.behaviour, "behaviour", "b", "", "file that describes how the containers behave")
	cmd.Flags().StringArrayVar(&o.with, "with", nil, "one more line of it; may be repeated")
	cmd.Flags().StringVar(&o.replay, "replay", "", "instead, replay the counterexamples in this file, which 'outrider verify -o json' wrote")
	cli.CompleteFiles(cmd, "replay", "json")
	return cmd
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	simulateAll := o.behave
	if o.replay != "" {
		simulateAll = o.replayed
	}
	all, err := simulateAll(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if err := view.Simulations(w, cli.TerminalOf(w), o.output, all); err != nil {
		return err
	}
	return cli.FirstError(all)
}

// replayed replays the counterexamples in the file of --replay.
func (o *simulateOptions) replayed(cmd *cobra.Command) (all []scenario.Simulation, err error) {
	if o.behaviour != "" || len(o.with) > 0 {
		return nil, &cli.UsageError{Err: errors.New("--replay says all that happens in the run: leave --behaviour and --with out")}
	}
	name, data, err := cli.Read(cmd, o.replay)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	r, err := scenario.ParseRecording(name, data)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	pods, err := o.subjects(cmd)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		runs, err := p.Replay(r)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		all = append(all, runs...)
	}
	if len(all) == 0 {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s has no counterexample of a pod that -f names", name)}
	}
	return all, nil
}

// behave simulates the pods with the behaviour from the flags.
func (o *simulateOptions) behave(cmd *cobra.Command) (all []scenario.Simulation, err error) {
	b, err := o.readBehaviour(cmd)
	if err != nil {
		return nil, err
	}
	if b.Given.Kubernetes != 0 && !cmd.Flags().Changed("kube") {
		o.kube = cli.KubeVersion(b.Given.Kubernetes)
	}
	pods, err := o.subjects(cmd)
	if err != nil {
		return nil, err
	}
	if name := b.Unknown(pods); name != "" {
		var have []string
		for _, p := range pods {
			have = append(have, p.Names()...)
		}
		return nil, &cli.UsageError{Err: fmt.Errorf("the behaviour names container %q, which no pod has", name), Hint: "containers here are " + strings.Join(have, ", ")}
	}
	for _, p := range pods {
		s, err := p.Simulate(b)
		if err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("%s: %w", p.Where(), err)}
		}
		all = append(all, s)
	}
	return all, nil
}

// readBehaviour reads the behaviour file, if there is one, and the lines of --with.
func (o *simulateOptions) readBehaviour(cmd *cobra.Command) (scenario.Behaviour, error) {
	var name string
	var text []byte
	if o.behaviour != "" {
		var err error
		if name, text, err = cli.Read(cmd, o.behaviour); err != nil {
			return scenario.Behaviour{}, &cli.UsageError{Err: err}
		}
	}
	b, err := scenario.ParseBehaviour(name, string(text), o.with)
	if err != nil {
		err = &cli.UsageError{Err: err, Hint: "outrider simulate --help lists the statements of a behaviour"}
	}
	return b, err
}
