package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/agent/gate"
	"outrider.dev/internal/agent/state"
	"outrider.dev/internal/cli"
	"outrider.dev/startup"
)

const gateExamples = `  # run java when the proxy is ready and the cache is healthy, or after 20 s without it
  outrider-agent gate --name app \
    --after 'outrider-proxy is healthy' --at outrider-proxy=http://127.0.0.1:15021/healthz/ready \
    --after 'cache is healthy, within 20s or continue' -- java -jar app.jar

  # wait for nobody, but say when this is healthy
  outrider-agent gate --name cache --probe '{"tcpSocket":{"port":6379}}' -- redis-server`

// newGate is the command that runs before, and then around, a container's own.
func newGate(termination *terminationLog) *cobra.Command {
	o := gate.Options{At: map[string]string{}}
	var after []string
	cmd := &cobra.Command{
		Use:   "gate --name NAME [--after EDGE]... -- COMMAND [ARG]...",
		Short: "wait for what a container depends on, then run its command",
		Long: `Waits until everything that --after names is there, at every start of the container,
then runs the command as its child: signals, terminal, exit status and orphans are its own.

Exit status: the command's own; 128+N if signal N ended it; 126 or 127 if it cannot be run;
75 if the gate gave up waiting; 76 if it restarts with a dependency; 77 if the postStart hook
failed; 78 if the startup probe did; 2 if the flags cannot be used.`,
		Example: gateExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := finishGate(&o, after, args); err != nil {
				return err
			}
			o.Say = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "outrider-gate:", line) }
			o.Explain = func(why string) { termination.write(why + "\n") }
			if status := gate.Run(cmd.Context(), o); status != 0 {
				return &cli.ExitError{Status: status}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.SetInterspersed(false) // what follows the command's name is its own
	placeFlags(fs, &o.Place)
	fs.StringArrayVar(&after, "after", nil, "what to wait for, as \"cache is healthy, within 20s or continue\"; may be repeated")
	fs.Var(addresses{o.At}, "at", "NAME=URL: where a container that publishes no state is asked; may be repeated")
	flag(fs, &o.Probe, "probe", "probe", gate.ParseProbe, "JSON of a pod's probe: succeeds when the command is healthy")
	flag(fs, &o.StartupProbe, "startup-probe", "probe", gate.ParseProbe, "JSON of a pod's startup probe: until it succeeds, \"held\" does too")
	flag(fs, &o.PostStart, "post-start", "hook", gate.ParseHook, "JSON of a pod's postStart hook: runs beside the command")
	flag(fs, &o.Notify, "notify", "how", gate.ParseNotify, "how the command says that it is ready: socket (sd_notify), fd or fd=N (a newline)")
	flag(fs, &o.Restart, "restart-policy", "policy", parseRestart, "the pod's: Always, OnFailure, Never")
	fs.StringSliceVar(&o.HelperOf, "helper-of", nil, "end, with status 0, when all of these have ended for good")
	fs.DurationVar(&o.StopGrace, "stop-grace", 30*time.Second, "what is left of the pod's grace period at SIGTERM; 0 passes it on at once")
	fs.BoolVar(&o.PreStop, "pre-stop", false, "the container has a preStop hook, so its SIGTERM comes late")
	flag(fs, &o.StopSignal, "stop-signal", "signal", parseSignal, "the image's, beside the usual ones")
	flag(fs, &o.NotifySignal, "notify-signal", "signal", parseSignal, "tells the command that a dependency is back; default: the file \"back\" alone does")
	return cmd
}

func placeFlags(fs *pflag.FlagSet, p *state.Place) {
	fs.StringVar(&p.Container, "name", "", "of this container")
	fs.StringVar(&p.States, "states", state.StatesDir, "where everybody's state is")
	fs.StringVar(&p.Own, "own", state.OwnDir, "where this container's is")
}

func finishGate(o *gate.Options, after, args []string) error {
	usage := func(format string, a ...any) error {
		return &cli.UsageError{Err: fmt.Errorf(format, a...), Hint: "outrider-agent gate --help lists the flags"}
	}
	if o.Place.Container == "" {
		return usage("--name is missing: whose command is this?")
	}
	if len(args) == 0 {
		return usage("there is no command after the flags")
	}
	for _, text := range after {
		e, err := gate.ParseAfter(o.Place.Container, text)
		if err != nil {
			return usage("--after: %w", err)
		}
		o.After = append(o.After, e)
	}
	if o.StopGrace <= 0 {
		o.StopGrace = -1
	}
	o.Command = args
	return nil
}

// addresses is the flag --at.
type addresses struct{ at map[string]string }

func (a addresses) String() string { return "" }
func (a addresses) Type() string   { return "name=url" }
func (a addresses) Set(text string) error {
	name, address, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("--at %q: want NAME=URL", text)
	}
	if err := gate.CheckAddress(address); err != nil {
		return fmt.Errorf("--at: %w", err)
	}
	a.at[name] = address
	return nil
}

// flag adds one that a function reads.
func flag[T any](fs *pflag.FlagSet, to *T, name, kind string, read func(string) (T, error), usage string) {
	fs.Var(value[T]{to, name, kind, read}, name, usage)
}

type value[T any] struct {
	to         *T
	name, kind string
	read       func(string) (T, error)
}

func (v value[T]) String() string { return "" }
func (v value[T]) Type() string   { return v.kind }
func (v value[T]) Set(text string) error {
	read, err := v.read(text)
	if err != nil {
		return fmt.Errorf("--%s: %w", v.name, err)
	}
	*v.to = read
	return nil
}

func parseRestart(text string) (startup.Restart, error) {
	switch text {
	case "Always":
		return startup.Always, nil
	case "OnFailure":
		return startup.OnFailure, nil
	case "Never":
		return startup.Never, nil
	}
	return "", fmt.Errorf("%q: want Always, OnFailure or Never", text)
}

// parseSignal reads SIGTERM, TERM or 15, and SIGRTMIN+3.
func parseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if s := unix.SignalNum("SIG" + name); s != 0 {
		return s, nil
	}
	offset, realtime := strings.CutPrefix(name, "RTMIN")
	n, err := strconv.Atoi(strings.TrimPrefix(name, "RTMIN"))
	const rtmin = 34
	switch {
	case realtime && offset == "":
		return rtmin, nil
	case realtime && err == nil && n >= 0 && rtmin+n <= 64:
		return syscall.Signal(rtmin + n), nil
	case err == nil && !realtime && n > 0 && n <= 64:
		return syscall.Signal(n), nil
	}
	return 0, fmt.Errorf("%q is no signal: want SIGTERM, TERM, 15 or SIGRTMIN+3", text)
}

// newHeld is what a liveness probe of a container with a gate runs.
func newHeld() *cobra.Command {
	var p state.Place
	var probe *gate.Probe
	cmd := &cobra.Command{
		Use:   "held --name NAME (--probe JSON | -- COMMAND [ARG]...)",
		Short: "succeed while the container's gate holds its command, then probe",
		Long: `Succeeds while the container waits at its gate, or has not started up yet. From then on
the status is that of the probe, or of the command.`,
		Example: `  outrider-agent held --name app --probe '{"httpGet":{"path":"/live","port":8080}}'
  outrider-agent held --name app -- /bin/grpc_health_probe -addr=:5000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case p.Container == "":
				return &cli.UsageError{Err: errors.New("--name is missing: which container is it?")}
			case (probe == nil) == (len(args) == 0):
				return &cli.UsageError{Err: errors.New("want either --probe or a command")}
			}
			sandbox, err := state.Sandbox()
			if err != nil {
				return err
			}
			// A state that cannot be read holds nothing: then the probe decides.
			if seen, err := state.Read(p.States, sandbox, p.Container); err == nil && seen.Held() {
				return nil
			}
			if probe != nil {
				return probe.Try(cmd.Context())
			}
			path, err := exec.LookPath(args[0])
			if err != nil {
				return err
			}
			return fmt.Errorf("%s: %w", path, unix.Exec(path, args, os.Environ()))
		},
	}
	cmd.Flags().SetInterspersed(false)
	placeFlags(cmd.Flags(), &p)
	flag(cmd.Flags(), &probe, "probe", "probe", gate.ParseProbe, "JSON of a pod's probe")
	return cmd
}
