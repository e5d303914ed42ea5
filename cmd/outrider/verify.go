package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/internal/model/verify"
)

type verifyOptions struct {
	files   []string
	output  string
	kube    kubeVersion
	promise string
	only    []string
	bound   verify.Bound
}

// promises are what can be asked for, by the words of --promise.
var promises = map[string][]verify.Promise{
	"both": {verify.Starts, verify.Stops}, "starts": {verify.Starts}, "stops": {verify.Stops},
}

var verifyOutputs = []string{"text", "json", "html"}

const verifyExamples = `  # does anything break the order of this pod, in any run with up to 3 faults?
  outrider verify -f deployment.yaml

  # does a container that crashes, once all have run?
  outrider verify -f deployment.yaml --only crash --settled

  # is the order kept if nothing goes wrong at all?
  outrider verify -f deployment.yaml --faults 0

  # in CI: starts only, with four faults, as JSON
  outrider verify -f deployment.yaml --promise starts --faults 4 -o json`

func newVerify() *cobra.Command {
	o := &verifyOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "verify -f FILE",
		Short: "try every run of a pod, faults included, and show the shortest one that breaks its plan",
		Long: `Tries every order in which the world can answer the kubelet: starts, ends, health, hooks,
time, and at every step a number of faults. Either no run within the bounds breaks the
plan, or the shortest one that does is printed, with the fewest faults.

Two promises are verified. "starts": no container runs before those it waits for, at any
start. "stops": wherever the pod is deleted, it stops in the reverse order.

The faults that --only takes:

` + indented(faultForms()) + `
The exit status is 0 only if all promises hold and everything within the bounds was looked
at; 1 if not; 2 if the input cannot be used.`,
		Example: verifyExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	inputFlags(cmd, &o.files, &o.output, verifyOutputs)
	fs := cmd.Flags()
	fs.IntVar(&o.bound.Faults, "faults", 3, "how many things may go wrong in one run")
	fs.StringSliceVar(&o.only, "only", nil, "only these kinds of faults (default all)")
	fs.BoolVar(&o.bound.Settled, "settled", false, "nothing goes wrong until every container has run once")
	fs.StringVar(&o.promise, "promise", "both", "what is verified: both, starts, stops")
	fs.IntVar(&o.bound.States, "states", 1_000_000, "give up after so many states; a million of them take about 300 MB")
	fs.DurationVar(&o.bound.Time, "time", time.Minute, "give up after that time, for each promise")
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	// Both fail for a flag that does not exist only.
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(faultNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("promise", cobra.FixedCompletions([]string{"both", "starts", "stops"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// meaning is what each kind of fault is, for people.
var meaning = map[verify.Fault]string{
	verify.NoImage:   "a pull fails",
	verify.NoStart:   "the runtime cannot start a container",
	verify.BadHook:   "a postStart or preStop fails",
	verify.BadProbe:  "a probe fails although its container is well",
	verify.Unhealthy: "a healthy container no longer is",
	verify.Crash:     "a container ends by itself",
	verify.Kill:      "a container ends by SIGKILL, and leaves a stale state behind",
	verify.NoSandbox: "the sandbox dies, or cannot be made",
}

func faultNames() []string {
	var out []string
	for _, f := range verify.Faults {
		out = append(out, string(f))
	}
	return out
}

func faultForms() string {
	var b strings.Builder
	for _, f := range verify.Faults {
		fmt.Fprintf(&b, "%-8s %s\n", f, meaning[f])
	}
	return b.String()
}

// check refuses what has no sense, and finishes the bound.
func (o *verifyOptions) check() error {
	usage := func(format string, args ...any) error { return &cli.UsageError{Err: fmt.Errorf(format, args...)} }
	switch _, known := promises[o.promise]; {
	case !known:
		return usage("--promise=%q: one of both, starts, stops", o.promise)
	case o.bound.Faults < 0 || o.bound.Faults > 100:
		return usage("--faults=%d: 0 to 100", o.bound.Faults)
	case o.bound.States < 1:
		return usage("--states=%d: at least 1", o.bound.States)
	case o.bound.Time <= 0:
		return usage("--time=%s: more than nothing, like 30s", o.bound.Time)
	}
	for _, name := range o.only {
		if !slices.Contains(verify.Faults, verify.Fault(name)) {
			return usage("--only=%q: one of %s", name, strings.Join(faultNames(), ", "))
		}
		o.bound.Only = append(o.bound.Only, verify.Fault(name))
	}
	if o.bound.Faults == 0 {
		o.bound.Faults = -1 // 0 is the package's default
	}
	return nil
}

func (o *verifyOptions) run(cmd *cobra.Command) error {
	if err := checkInput(o.files, o.output, verifyOutputs); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	pods, err := readRunning(cmd, o.files, o.kube)
	if err != nil {
		return err
	}
	// Ctrl-C prints what was found until then.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var all []verified
	for _, p := range pods {
		v, err := o.verify(ctx, p, cmd.ErrOrStderr())
		if err != nil {
			return &cli.UsageError{Err: fmt.Errorf("%s: document %d: %s: %w", p.File, p.Document, p.Object, err)}
		}
		all = append(all, v)
	}
	if err := printVerified(cmd.OutOrStdout(), o.output, all); err != nil {
		return err
	}
	return unproved(all)
}

// verify asks for the promises of one pod. A pod without edges promises nothing.
func (o *verifyOptions) verify(ctx context.Context, p running, stderr io.Writer) (verified, error) {
	v := verified{running: p, Holds: true}
	if len(p.Plan.Edges) == 0 {
		return v, nil
	}
	for _, promise := range promises[o.promise] {
		meter := newMeter(stderr, p.Object.String()+" "+words[promise])
		q := verify.Question{Pod: p.life, Plan: p.Plan, Version: kubelet.Minor(int(o.kube)), Promise: promise}
		r, err := verify.Explore(ctx, q, o.bound, meter.show)
		meter.clear()
		if err != nil {
			return v, err
		}
		v.Results = append(v.Results, answer{Result: r, Asked: words[promise], Holds: r.Holds()})
		v.Holds = v.Holds && r.Holds()
	}
	return v, nil
}

// A meter shows how far an exploration has come, once it takes long, where
// somebody looks.
type meter struct {
	w     io.Writer
	what  string
	began time.Time
	shown bool
}

func newMeter(w io.Writer, what string) *meter { return &meter{w: w, what: what, began: time.Now()} }

func (m *meter) show(p verify.Progress) {
	if time.Since(m.began) < time.Second || !isTerminal(m.w) {
		return
	}
	m.shown = true
	fmt.Fprintf(m.w, "\r\x1b[K%s: %d states, %s, %d events deep, %d open", m.what, p.States, plural(p.Faults, "fault"), p.Depth, p.Open)
}

func (m *meter) clear() {
	if m.shown {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
