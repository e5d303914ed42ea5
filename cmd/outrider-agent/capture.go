package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/commandline"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/nftables"
	"outrider.dev/internal/core/capture/setup"
)

// captureLimit bounds a whole run, which may wait for the lock of iptables or for the kernel.
const captureLimit = time.Minute

// captureOptions holds the intent and the other settings of a run.
type captureOptions struct {
	intent  capture.Intent
	output  cli.Output
	backend string
	variant string
	netns   string
	proof   bool
	host    bool

	dryRun, skipRules, validate, cleanup, nativeNFT bool
	probePort                                       uint16
}

const captureExamples = `  # what an init container runs: everything but the proxy's own traffic to the proxy
  outrider-agent capture -p 15001 -z 15006 -u 1337 -i '*' -b '*' -d 15090,15020

  # what it would do, and why
  outrider-agent capture -i '*' -b '*' --dry-run

  # parking alone, with the capture rules of another mesh
  outrider-agent capture --park-only

  # check that the rules are as they were written, and that they work
  outrider-agent capture verify`

func newCapture(termination *terminationLog) *cobra.Command {
	cmd, _ := captureCommand(termination)
	cmd.AddCommand(newClean(termination), newVerify(termination), newRelease())
	return cmd
}

// captureCommand returns the command capture without its subcommands, and the options that its flags
// set.
func captureCommand(termination *terminationLog) (*cobra.Command, *captureOptions) {
	o := &captureOptions{intent: capture.Defaults()}
	cmd := &cobra.Command{
		Use:     "capture",
		Aliases: []string{"istio-iptables"},
		Short:   "redirect the pod's traffic to its proxy, and park early connections",
		Long: `Redirects the pod's traffic to its proxy, atomically, and proves that it works.
Connections that come before the proxy listens wait instead of being refused.

Flags and variables are those of istio-iptables. A second run, with other flags or
another backend, replaces the rules of the first. A run waits until another one in the
same network namespace has ended.`,
		Example: captureExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	cmd.Flags().SortFlags = false
	commandline.IntentFlags(cmd.Flags(), &o.intent, &o.output)
	commandline.ServersFlag(cmd.Flags())
	o.operationFlags(cmd.Flags())
	o.sharedFlags(cmd.Flags(), termination)
	return cmd, o
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &cli.UsageError{
		Err:  fmt.Errorf("%q is not a flag", args[0]),
		Hint: "quote '*', or the shell replaces it by file names; " + cmd.CommandPath() + " --help lists the flags",
	}
}

// operationFlags adds the flags for the operation of capture; most of them are Istio's.
func (o *captureOptions) operationFlags(fs *pflag.FlagSet) {
	flag := func(p *bool, name, short, usage string) {
		fs.BoolVarP(p, name, short, false, usage)
		cli.BindEnv(fs, name, envName(name))
	}
	flag(&o.dryRun, "dry-run", "n", "print the rules and change nothing")
	flag(&o.skipRules, "skip-rule-apply", "", "write no rules; with --run-validation: verify those that are there")
	flag(&o.validate, "run-validation", "", "prove that the rules work (done anyway, unless --proof=false)")
	flag(&o.cleanup, "cleanup-only", "", "remove the rules, as capture clean does")
	flag(&o.nativeNFT, "native-nftables", "", "as --backend=nftables")
	fs.Uint16Var(&o.probePort, "iptables-probe-port", contract.ProbePort, "accepted; the proof opens no port")
	cli.BindEnv(fs, "iptables-probe-port", "IPTABLES_PROBE_PORT")
	fs.Duration("probe-timeout", 5*time.Second, "accepted; the proof needs no timeout")
	cli.BindEnv(fs, "probe-timeout", "PROBE_TIMEOUT")
	for _, name := range []string{"reconcile", "force-apply", "cni-mode"} {
		flag(new(bool), name, "", "accepted; every run replaces the rules that are there")
	}
	fs.StringVar(&o.variant, "force-iptables-binary", "", "use the iptables backend, by these binaries: legacy or nft")
	cli.BindEnv(fs, "force-iptables-binary", "FORCE_IPTABLES_BINARY")
	fs.BoolVar(&o.proof, "proof", true, "read the rules back and try both directions")
	cli.BindEnv(fs, "proof", "OUTRIDER_PROOF")
	fs.BoolVar(&o.host, "host", false, "capture also in the network namespace of the machine itself, which is refused otherwise")
	// Istio's injector writes these flags into the init container's arguments.
	for _, name := range []string{"log_output_level", "log_as_json", "log_caller", "log_stacktrace_level", "log_target", "log_rotate", "log_rotate_max_age", "log_rotate_max_backups", "log_rotate_max_size", "vklog"} {
		fs.String(name, "", "accepted, without effect")
		fs.Lookup(name).NoOptDefVal = "true"
		fs.Lookup(name).Hidden = true
	}
}

// sharedFlags adds the flags that capture shares with its subcommands.
func (o *captureOptions) sharedFlags(fs *pflag.FlagSet, termination *terminationLog) {
	fs.StringVar(&o.backend, "backend", "auto", "backend that writes the rules: nftables, iptables, or auto, the first one that this kernel supports")
	cli.BindEnv(fs, "backend", "OUTRIDER_BACKEND")
	fs.StringVar(&o.netns, "network-namespace", "", "path of the network namespace to work in; default: this one")
	cli.BindEnv(fs, "network-namespace", "NETWORK_NAMESPACE")
	fs.StringVar(&termination.path, "termination-log", termination.path, "file that gets the reason of a failure, if it exists [$OUTRIDER_TERMINATION_LOG]")
}

func envName(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

// backends checks the flags, enters the namespace, and opens the backends.
func (o *captureOptions) backends() ([]setup.Backend, error) {
	if o.nativeNFT {
		o.backend = capture.NFTables
	}
	switch o.variant {
	case "":
	case "legacy", "nft":
		o.backend = capture.IPTables
	default:
		return nil, &cli.UsageError{Err: fmt.Errorf("--force-iptables-binary=%q: one of legacy, nft", o.variant)}
	}
	switch o.backend {
	case "auto", capture.NFTables, capture.IPTables:
	default:
		return nil, &cli.UsageError{Err: fmt.Errorf("--backend=%q: one of auto, nftables, iptables", o.backend)}
	}
	if o.netns != "" {
		if err := enter(o.netns); err != nil {
			return nil, err
		}
	}
	return setup.Backends(o.backend, o.variant)
}

// enter moves the calling goroutine into a network namespace for the rest of its life. Namespaces
// belong to threads, so enter locks the goroutine to its thread. A run that needs no other namespace
// does not call enter, because a locked goroutine is slower: each answer of the kernel costs a
// switch between threads.
func enter(path string) error {
	runtime.LockOSThread()
	f, err := os.Open(path)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--network-namespace: %w", err)}
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("--network-namespace=%q: entering it: %w", path, err)
	}
	return nil
}

func (o *captureOptions) run(cmd *cobra.Command) error {
	if err := commandline.FinishIntent(cmd.Flags(), &o.intent); err != nil {
		return err
	}
	ctx, cancel := limited(cmd.Context())
	defer cancel()
	switch {
	case o.dryRun:
		return o.print(cmd.OutOrStdout())
	case o.cleanup:
		return o.clean(ctx, cmd)
	case o.skipRules && o.validate:
		return o.verify(ctx, cmd, nil)
	case o.skipRules:
		return nil
	}
	_, err := o.apply(ctx, cmd)
	return err
}

func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, captureLimit, errors.New("capture took too long"))
}

// errHost refuses to capture in the machine's own network namespace, which every process of the
// machine shares. It protects against a command that is pasted into a shell of the machine, and
// against a pod with hostNetwork.
var errHost = &cli.UsageError{
	Err:  errors.New("this is the network namespace of the machine itself: capture would redirect the connections of every process in it"),
	Hint: "run it in a pod, in a namespace of its own (unshare --net), or with --network-namespace; --host captures the machine",
}

// apply writes the rules, proves that they work, and prints and returns the report.
func (o *captureOptions) apply(ctx context.Context, cmd *cobra.Command) (setup.Report, error) {
	ctx, unlock, backends, err := o.locked(ctx, cmd)
	if err != nil {
		return setup.Report{}, err
	}
	defer unlock()
	if !o.host && setup.InHost() {
		return setup.Report{}, errHost
	}
	report, err := setup.Capture(ctx, setup.Options{Intent: o.intent, Backends: backends, NoProof: !o.proof})
	if err != nil {
		return report, err
	}
	return report, writeReport(cmd, o.output, report)
}

// locked opens the backends and takes the lock of the network namespace, so that no other process
// changes the rules until unlock is called.
func (o *captureOptions) locked(ctx context.Context, cmd *cobra.Command) (_ context.Context, unlock func(), _ []setup.Backend, _ error) {
	backends, err := o.backends()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, unlock, err = setup.Lock(ctx, cmd.ErrOrStderr())
	return ctx, unlock, backends, err
}

// print prints the rules that would be written, as input for nft or iptables-restore.
// With Istio's DRY_RUN_FILE_PATH it also writes them to that file.
func (o *captureOptions) print(w io.Writer) error {
	if path := os.Getenv("DRY_RUN_FILE_PATH"); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("DRY_RUN_FILE_PATH: %w", err)
		}
		defer f.Close()
		w = io.MultiWriter(w, f)
	}
	in, backend := o.intent, o.backend
	if in.Families == 0 {
		in.Families = capture.DualStack
	}
	if o.variant != "" {
		backend = capture.IPTables
	} else if backend != capture.IPTables {
		backend = capture.NFTables
	}
	rs, _ := capture.Build(in, backend)
	if o.output == cli.JSON {
		return cli.WriteJSON(w, rs)
	}
	if backend == capture.NFTables {
		_, err := io.WriteString(w, nftables.Script(rs))
		return err
	}
	text, err := iptables.Script(rs)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

func (o *captureOptions) clean(ctx context.Context, cmd *cobra.Command) error {
	ctx, unlock, backends, err := o.locked(ctx, cmd)
	if err != nil {
		return err
	}
	defer unlock()
	return setup.Clean(ctx, backends)
}

func (o *captureOptions) verify(ctx context.Context, cmd *cobra.Command, intent *capture.Intent) error {
	ctx, unlock, backends, err := o.locked(ctx, cmd)
	if err != nil {
		return err
	}
	defer unlock()
	report, err := setup.Verify(ctx, backends, intent)
	if err != nil {
		return err
	}
	return writeReport(cmd, o.output, report)
}

func writeReport(cmd *cobra.Command, output cli.Output, r setup.Report) error {
	for _, n := range r.Notes {
		cli.Note(cmd, "%s", n)
	}
	w := cmd.OutOrStdout()
	if output == cli.JSON {
		record, _ := r.Ruleset.Recorded()
		return cli.WriteJSON(w, struct {
			Record    string        `json:"record"`
			Backend   string        `json:"backend"`
			Families  string        `json:"families"`
			Rules     int           `json:"rules"`
			Unchanged bool          `json:"unchanged"`
			Parked    uint64        `json:"parked"`
			Notes     []string      `json:"notes,omitempty"`
			Proofs    []setup.Proof `json:"proofs,omitempty"`
		}{record, r.Ruleset.Backend, r.Ruleset.Families.String(), r.Ruleset.Len(), r.Unchanged, r.Parked, r.Notes, r.Proofs})
	}
	if r.Ruleset.Empty() {
		_, err := fmt.Fprintln(w, "nothing is captured, nothing is parked")
		return err
	}
	state := "written"
	if r.Unchanged {
		state = "in place already"
	}
	fmt.Fprintf(w, "%d rules %s: %s, %s\n", r.Ruleset.Len(), state, r.Ruleset.Backend, r.Ruleset.Families)
	for _, p := range r.Proofs {
		fmt.Fprintln(w, p)
	}
	_, err := fmt.Fprintf(w, "connection attempts parked so far: %d\n", r.Parked)
	return err
}

func newClean(termination *terminationLog) *cobra.Command {
	o := &captureOptions{}
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "remove everything that capture wrote, with any flags and backend",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			return o.clean(cmd.Context(), cmd)
		},
	}
	o.sharedFlags(cmd.Flags(), termination)
	return cmd
}

func newVerify(termination *terminationLog) *cobra.Command {
	o := &captureOptions{intent: capture.Defaults()}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "check that the rules are as they were written, and that they work",
		Long: `Reads the rules back, checks that they are unchanged, and tries both directions.
With flags of capture on the command line, the rules must also be those of the flags.`,
		Example: "  outrider-agent capture verify\n  outrider-agent capture verify -i '*' -b '*' -d 15090,15020 --output=json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := intentGiven(cmd.Flags())
			if err := commandline.FinishIntent(cmd.Flags(), &o.intent); err != nil {
				return err
			}
			var intent *capture.Intent
			if given {
				intent = &o.intent
			}
			return o.verify(cmd.Context(), cmd, intent)
		},
	}
	cmd.Flags().SortFlags = false
	commandline.IntentFlags(cmd.Flags(), &o.intent, &o.output)
	o.sharedFlags(cmd.Flags(), termination)
	return cmd
}

// intentGiven reports whether the command line contains a flag of the intent.
func intentGiven(fs *pflag.FlagSet) bool {
	given := false
	for _, f := range capture.Flags(&capture.Intent{}, nil, nil) {
		given = given || fs.Changed(f.Name)
	}
	return given
}

func newRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "release [PORT...]",
		Short: "end parking for a proxy that will not come back: connections are refused at once",
		Long: `Ends the parking on ports (default: 15001 and 15006) until there is a listener again.
It needs no capability: the rules accept it from the proxy's users and from root, with
--park-only from every user. The exit status is 1 if the rules did not accept it.`,
		Example: "  outrider-agent capture release\n  outrider-agent capture release 8080",
		RunE: func(_ *cobra.Command, args []string) error {
			ports, err := releasePorts(args)
			if err != nil {
				return err
			}
			return capture.Release(ports...)
		},
	}
}

func releasePorts(args []string) ([]uint16, error) {
	if len(args) == 0 {
		d := capture.Defaults()
		return []uint16{d.OutboundPort, d.InboundPort}, nil
	}
	var ports []uint16
	for _, arg := range args {
		p, err := capture.ParsePort(arg)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		ports = append(ports, p)
	}
	return ports, nil
}
