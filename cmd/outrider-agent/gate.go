package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/gate"
	"outrider.dev/internal/core/agent/sockets"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/capture"
	"outrider.dev/startup"
)

const gateExamples = `  # run java when the proxy is ready and the cache is healthy, or after 20 s without it
  outrider-agent gate --name app \
    --after 'outrider-proxy is healthy' --at outrider-proxy=http://127.0.0.1:15021/healthz/ready \
    --after 'cache is healthy, within 20s or continue' -- java -jar app.jar

  # wait for no other container, but publish when this one is healthy
  outrider-agent gate --name cache --probe '{"tcpSocket":{"port":6379}}' -- redis-server`

// newGate returns the command gate, which waits and then runs a container's own command as its child.
func newGate(termination *terminationLog) *cobra.Command {
	var line contract.Gate
	cmd := &cobra.Command{
		Use:   "gate --name NAME [--after EDGE]... -- COMMAND [ARG]...",
		Short: "wait for what a container depends on, then run its command",
		Long: `Waits until every condition of --after holds, at every start of the container, then runs the
command as its child. The command gets the signals and the terminal, and orphans are reaped.

Exit status: that of the command; 128+N if signal N ended it; 126 or 127 if it cannot be run;
75 if the gate gave up waiting; 76 if it restarts with a dependency; 77 if the postStart hook
failed; 78 if the startup probe did; 2 if the flags cannot be used.`,
		Example: gateExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			line.Command = args
			o, err := gateOptions(line)
			if err != nil {
				return &cli.UsageError{Err: err, Hint: "outrider-agent gate --help lists the flags"}
			}
			o.Say = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), contract.GateSays+line) }
			o.Explain = termination.write
			if status := gate.Run(cmd.Context(), o); status != 0 {
				return &cli.ExitError{Status: status}
			}
			return nil
		},
	}
	addFlags(cmd, line.Flags())
	return cmd
}

// addFlags adds flags to a command that runs another command. Flags after the name of the other command belong
// to that command.
func addFlags(cmd *cobra.Command, flags *flag.FlagSet) {
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().AddGoFlagSet(flags)
}

// gateOptions turns the command line into the options of a gate.
func gateOptions(line contract.Gate) (gate.Options, error) {
	o := gate.Options{
		Place: state.Place{Container: line.Name, States: line.States, Own: line.Own}, Command: line.Command,
		At: map[string]*url.URL{}, Environ: os.Environ(), HelperOf: line.HelperOf, StopGrace: line.StopGrace, PreStop: line.PreStop,
		LivenessDelay: line.LivenessDelay, Release: capture.ReleaseMesh,
	}
	if line.Name == "" {
		return o, errors.New("--name is missing: which container runs the command?")
	}
	if len(line.Command) == 0 {
		return o, errors.New("there is no command after the flags")
	}
	for _, text := range line.After {
		e, err := gate.ParseAfter(line.Name, text)
		if err != nil {
			return o, fmt.Errorf("--after: %w", err)
		}
		o.After = append(o.After, e)
	}
	for _, name := range slices.Sorted(maps.Keys(line.At)) {
		u, err := gate.ParseAddress(line.At[name])
		if err != nil {
			return o, fmt.Errorf("--at: %w", err)
		}
		o.At[name] = u
	}
	return o, cmp.Or(
		parseFlag("probe", line.Probe, gate.ParseProbe, &o.Probe),
		parseFlag("startup-probe", line.StartupProbe, gate.ParseProbe, &o.StartupProbe),
		parseFlag("post-start", line.PostStart, gate.ParseHook, &o.PostStart),
		parseFlag("notify", line.Notify, gate.ParseNotify, &o.Notify),
		parseFlag("restart-policy", line.RestartPolicy, parseRestart, &o.Restart),
		parseFlag("stop-signal", line.StopSignal, parseSignal, &o.StopSignal),
		parseFlag("notify-signal", line.NotifySignal, parseSignal, &o.NotifySignal),
	)
}

// parseFlag parses and stores the value of a flag, if it is given.
func parseFlag[T any](name, text string, parse func(string) (T, error), to *T) error {
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		return fmt.Errorf("--%s: %w", name, err)
	}
	*to = value
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

// sigrtmin is the C library's SIGRTMIN, which Go's runtime does not deliver.
const sigrtmin = 34

// parseSignal parses SIGTERM, TERM, 15 or SIGRTMIN+3.
func parseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if s := unix.SignalNum("SIG" + name); s != 0 {
		return s, nil
	}
	offset, realtime := strings.CutPrefix(name, "RTMIN+")
	n, err := strconv.Atoi(offset)
	if realtime {
		n += sigrtmin
	}
	switch {
	case name == "RTMIN" || err == nil && n == sigrtmin:
		return 0, fmt.Errorf("%q: a gate cannot pass SIGRTMIN on", text)
	case err == nil && n > 0 && n <= 64 && (!realtime || n > sigrtmin):
		return syscall.Signal(n), nil
	}
	return 0, fmt.Errorf("%q is no signal: want SIGTERM, TERM, 15 or SIGRTMIN+3", text)
}

// newStarted returns the command started, which the startup probe of a container with a gate runs.
func newStarted() *cobra.Command {
	var line contract.Started
	cmd := &cobra.Command{
		Use:   "started --name NAME",
		Short: "succeed once the command behind the gate runs, and its startup probe has succeeded",
		Long: `Waits until the command behind the container's gate runs, and its startup probe has succeeded
if it has one. Fails at once if no gate has published a state, or its process has died. As a startup
probe it delays the kubelet's other probes until then; the probe's timeout ends it.`,
		Example: "  outrider-agent started --name app",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if line.Name == "" {
				return &cli.UsageError{Err: errors.New("--name is missing: which container is it?")}
			}
			sandbox, err := state.Sandbox()
			if err != nil {
				return err
			}
			started, err := state.Await(cmp.Or(line.States, contract.StatesDir), sandbox, line.Name, state.Seen.Started)
			if err == nil && !started {
				err = fmt.Errorf("the gate of %s does not run", line.Name)
			}
			return err
		},
	}
	addFlags(cmd, line.Flags())
	return cmd
}

// newPreStop returns the command pre-stop, which the preStop hook of a proxy without a gate runs.
func newPreStop() *cobra.Command {
	var line contract.PreStop
	cmd := &cobra.Command{
		Use:   "pre-stop --name NAME",
		Short: "keep a proxy without a gate until the containers that need it have ended",
		Long: `Waits until the command of every container has ended whose gate waits for the proxy at its start,
and with --sockets until five seconds without a socket of another container and without a call. As the
preStop hook of the proxy's container it delays the proxy's SIGTERM until then. It does not wait for a proxy that is not
healthy, for one that is stopped alone, or longer than the grace period without its last two seconds.`,
		Example: "  outrider-agent pre-stop --name istio-proxy --at http://127.0.0.1:15021/healthz/ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := stopHook(line)
			if err != nil {
				return &cli.UsageError{Err: err, Hint: "outrider-agent pre-stop --help lists the flags"}
			}
			if h.Sandbox, err = state.Sandbox(); err != nil {
				return err
			}
			h.Say = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			return h.Run(cmd.Context())
		},
	}
	addFlags(cmd, line.Flags())
	return cmd
}

// stopHook turns the command line into a hook.
func stopHook(line contract.PreStop) (h gate.StopHook, err error) {
	if line.Name == "" {
		return h, errors.New("--name is missing: which container is the proxy?")
	}
	h = gate.StopHook{Name: line.Name, States: cmp.Or(line.States, contract.StatesDir), Grace: line.StopGrace, Release: capture.ReleaseMesh}
	if line.Sockets {
		h.Look = func() (s gate.Sight, err error) {
			s.Calls, _ = sockets.Calls() // a sandboxed kernel may not count them; sockets remain
			s.Sockets, err = sockets.Elsewhere(line.Apart...)
			return s, err
		}
	}
	return h, cmp.Or(
		parseFlag("live", line.Live, gate.ParseProbe, &h.Live),
		parseFlag("at", line.At, gate.ParseAddress, &h.At),
		parseFlag("drain", line.Drain, gate.ParseAddress, &h.Drain),
		parseFlag("hook", line.Hook, gate.ParseHook, &h.Own),
	)
}

// newHeld returns the command held, which the liveness probe of a container with a gate runs.
func newHeld() *cobra.Command {
	var line contract.Held
	cmd := &cobra.Command{
		Use:   "held --name NAME (--probe JSON | -- COMMAND [ARG]...)",
		Short: "succeed while the gate holds the command, then run its probe",
		Long: `Succeeds while the container waits at its gate, its startup probe has not succeeded yet, or the delay
of its liveness probe is not over (--liveness-delay of the gate). Afterwards the exit status is that
of the probe, or of the command.`,
		Example: `  outrider-agent held --name app --probe '{"httpGet":{"path":"/live","port":8080}}'
  outrider-agent held --name app -- /bin/grpc_health_probe -addr=:5000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var probe *gate.Probe
			switch {
			case line.Name == "":
				return &cli.UsageError{Err: errors.New("--name is missing: which container is it?")}
			case (line.Probe == "") == (len(args) == 0):
				return &cli.UsageError{Err: errors.New("want either --probe or a command")}
			}
			if err := parseFlag("probe", line.Probe, gate.ParseProbe, &probe); err != nil {
				return &cli.UsageError{Err: err}
			}
			sandbox, err := state.Sandbox()
			if err != nil {
				return err
			}
			// If the state cannot be read, the probe decides.
			if seen, err := state.Read(cmp.Or(line.States, contract.StatesDir), sandbox, line.Name); err == nil && seen.Held() {
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
	addFlags(cmd, line.Flags())
	return cmd
}
