package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/chart"
	"outrider.dev/internal/model/simulate"
	"outrider.dev/startup"
)

type simulateOptions struct {
	files     []string
	output    string
	behaviour string
	with      []string
	kube      kubeVersion
}

var simulateOutputs = []string{"text", "json", "svg", "html"}

const simulateExamples = `  # what happens when this Deployment starts, where the proxy needs 3 s to be ready
  outrider simulate -f deployment.yaml --with 'istio-proxy: healthy after 3s'

  # and when the proxy crashes later, and the app calls it
  outrider simulate -f deployment.yaml --with 'istio-proxy: crashes after 20s' --with 'shop: calls istio-proxy every 1s'

  # how the pod stops
  outrider simulate -f deployment.yaml --with 'deleted at 30s' --with 'shop: stops after 4s'

  # a behaviour in a file, a page for a browser
  outrider simulate -f deployment.yaml --behaviour monday.txt -o html > monday.html`

func newSimulate() *cobra.Command {
	o := &simulateOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE",
		Short: "play a pod's start and stop on a virtual clock, and say whether its plan is kept",
		Long: `Plays what the kubelet does with the pods of FILE, by the kubelet's own rules and on a
virtual clock: minutes of a pod take milliseconds, and the same input always has the same
outcome. Prints a chart of it, and each edge of the plan that was broken.

How the containers behave is yours to say, in lines of text, with --with or in a file. A
line speaks of the pod, or after a name and a colon of a container, in clauses with commas
between; # begins a comment:

  until 90s
  sandbox takes 300ms
  sandbox dies at 40s
  deleted at 60s
  kubernetes 1.34
  istio-proxy: image takes 2s, healthy after 1.5s
  shop: calls istio-proxy after 200ms or exits 1, stops after 3s

What can be said of a container; D is a time, N a number, NAME another container:

` + indented(simulate.Forms()) + fmt.Sprintf(`
Of what nothing is said it is assumed, and printed, that an init container completes after
%s, a mesh's proxy is healthy after %s, and the command of a Job completes after %s.
All else works at once, and runs for ever. What a hook waits for, and how long a command
sleeps before it begins, is read from the manifest.

The exit status is 1 if an edge of a plan was broken, 2 if the input cannot be used.`, initTakes, proxyTakes, jobTakes),
		Example: simulateExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	inputFlags(cmd, &o.files, &o.output, simulateOutputs)
	fs := cmd.Flags()
	fs.StringVarP(&o.behaviour, "behaviour", "b", "", "file with what the containers do")
	fs.StringArrayVar(&o.with, "with", nil, "one line more of it; may be repeated")
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	return cmd
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

// A simulated is an object and what became of it.
type simulated struct {
	running
	Assumed  []string         `json:"assumed,omitempty"`
	Outcome  simulate.Outcome `json:"outcome"`
	Restarts int              `json:"restarts"`
	Refused  int              `json:"refused"` // calls
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	if err := checkInput(o.files, o.output, simulateOutputs); err != nil {
		return err
	}
	w, err := readWorld(cmd, o.behaviour, o.with)
	if err != nil {
		return err
	}
	if w.said.Kubernetes != 0 && !cmd.Flags().Changed("kube") {
		o.kube = kubeVersion(w.said.Kubernetes)
	}
	pods, err := readRunning(cmd, o.files, o.kube)
	if err != nil {
		return err
	}
	if err := w.unknown(pods); err != nil {
		return err
	}
	var all []simulated
	for _, p := range pods {
		s, err := w.simulate(p, int(o.kube))
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("%s: document %d: %s: %w", p.File, p.Document, p.Object, err)}
		}
		all = append(all, s)
	}
	if err := printSimulated(cmd.OutOrStdout(), o.output, all); err != nil {
		return err
	}
	return brokenBy(all)
}

func (w world) simulate(p running, kube int) (simulated, error) {
	b, assumed, err := w.around(p)
	if err != nil {
		return simulated{}, err
	}
	b.Kubernetes = kube
	out, err := simulate.Run(simulate.Scenario{Pod: p.life, Plan: p.Plan, Behaviour: b})
	return simulated{running: p, Assumed: assumed, Outcome: out, Restarts: out.Restarts(), Refused: out.Refused()}, err
}

func printSimulated(w io.Writer, output string, all []simulated) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "svg":
		var charts []chart.Chart
		for _, s := range all {
			charts = append(charts, s.chart())
		}
		return printed(w, chart.SVG(charts))
	case "html":
		var sections []chart.Section
		for _, s := range all {
			sections = append(sections, s.section())
		}
		return printed(w, chart.HTML("Simulated: "+titles(all), sections))
	}
	p := printer{colour: isTerminal(w)}
	for i, s := range all {
		if i > 0 {
			p.line("")
		}
		p.head(s.running)
		for _, a := range s.Assumed {
			p.line("  %s", p.paint(faint, "assumed: "+a))
		}
		p.line("")
		c := s.chart()
		c.Title = ""
		p.WriteString(c.Text(chart.TextOptions{Width: columns(w), Color: p.colour}))
		p.line("%s", p.paint(verdictColour(len(s.Outcome.Violations) == 0), s.verdict()))
	}
	return shown(w, p.String())
}

func verdictColour(good bool) string {
	if good {
		return green
	}
	return red
}

func titles(all []simulated) string {
	var out []string
	for _, s := range all {
		out = append(out, s.Object.String())
	}
	return strings.Join(out, ", ")
}

func (s simulated) chart() chart.Chart {
	c := s.Outcome.Chart(s.Plan)
	c.Title = s.Object.String() + ", Kubernetes " + s.Kubernetes
	return c
}

func (s simulated) section() chart.Section {
	lines := s.sentences()
	for _, a := range s.Assumed {
		lines = append(lines, "assumed: "+a)
	}
	return chart.Section{Chart: s.chart(), From: fmt.Sprintf("%s, document %d", s.File, s.Document), Lines: lines,
		Verdict: s.verdict(), Good: len(s.Outcome.Violations) == 0, Timeline: s.Outcome.Timeline}
}

// verdict is the outcome in one line.
func (s simulated) verdict() string {
	kept := noEdges
	if n := len(s.Plan.Edges); n > 0 {
		kept = plural(n, "edge") + " kept"
		if bad := len(brokenEdges(s.Outcome.Violations)); bad > 0 {
			kept = fmt.Sprintf("%d of %s broken", bad, plural(n, "edge"))
		}
	}
	end := "the pod ended at"
	if !s.Outcome.Over {
		end = "it runs on at"
	}
	return fmt.Sprintf("%s; %s, %s; %s %s", kept, plural(s.Restarts, "restart"), plural(s.Refused, "refused call"), end, s.Outcome.End.Round(time.Millisecond))
}

// brokenEdges are the edges that were broken, each once.
func brokenEdges(violations []startup.Violation) map[startup.Edge]bool {
	out := map[startup.Edge]bool{}
	for _, v := range violations {
		out[v.Edge] = true
	}
	return out
}

// brokenBy is the error of simulations that broke a plan; nil if none did.
func brokenBy(all []simulated) error {
	for _, s := range all {
		if v := s.Outcome.Violations; len(v) > 0 {
			return fmt.Errorf("%s: document %d: %s: %s", s.File, s.Document, s.Object, chart.Sentence(v[0]))
		}
	}
	return nil
}
