package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/proxy"
)

// collectAt is the value of GOGC: the growth of the heap in percent that starts a garbage collection.
// Half of Go's default saves 2 MiB in every pod, and costs little, because an idle agent allocates little.
const collectAt = 50

// processors limits the value of GOMAXPROCS. Each further processor keeps memory of its own: with 16 an idle
// agent takes 1.2 MiB more. Two suffice to relay all early connections that a pod can have.
const processors = 2

// newProxy returns the command proxy. args are the program's arguments, in which it finds the flags that
// the parser ignores.
func newProxy(termination *terminationLog, args []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy [sidecar]",
		Short: "run as PID 1 of the proxy's container: certificates, Envoy, readiness, drain",
		Long: `Runs Envoy as PID 1 of the proxy's container. It opens the status ports first, gets a
certificate, starts Envoy, releases every waiter when Envoy is ready, restarts it after a
crash, and stops last.

Settings have Istio's names: flags, variables, the mesh's defaultConfig, PROXY_CONFIG and the
annotation proxy.istio.io/config. A setting without effect is logged.

A change of the pod's annotations is applied at once for the log levels of Envoy and of the agent,
terminationDrainDuration and drainDuration. Any other change is refused with the reason, in
the log and in the journal (/startup).`,
		Example: `  POD_NAME=app-1 POD_NAMESPACE=shop SERVICE_ACCOUNT=app \
    outrider-agent proxy --control-plane outriderd.outrider-system.svc:15012 --work-dir /run/outrider`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] != "sidecar" {
				return &cli.UsageError{Err: fmt.Errorf("proxy %s: want no argument, or sidecar: there is no other kind of proxy here", strings.Join(args, " "))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := map[string]string{}
			cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
			inputs := config.Inputs{Flags: given, Environ: os.Environ(), ReadFile: os.ReadFile, Addresses: ownAddresses, Version: cli.Version()}
			c, err := config.Read(inputs)
			if err != nil {
				return &cli.UsageError{Err: err, Hint: "outrider-agent proxy --help; the variables are Istio's"}
			}
			c.Notes = append(c.Notes, unknown(cmd.Flags(), args)...)
			level := &slog.LevelVar{}
			level.Set(c.LogLevel)
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(collectAt)
			}
			if os.Getenv("GOMAXPROCS") == "" {
				runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
			}
			stop, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer cancel()
			status, err := proxy.Run(stop, context.Background(), proxy.Options{Config: c, Inputs: inputs, Log: log, Level: level, TerminationMessage: termination.path, Stdout: os.Stdout})
			var wrong *proxy.ConfigError
			switch {
			case errors.As(err, &wrong):
				return &cli.UsageError{Err: err}
			case err != nil:
				return &cli.ExitError{Status: status, Err: err}
			}
			return nil
		},
	}
	for _, f := range config.Flags {
		usage := f.Usage
		if f.Without != "" {
			usage += "; without effect: " + f.Without
		}
		cmd.Flags().String(f.Name, "", usage)
	}
	cmd.FParseErrWhitelist.UnknownFlags = true // like pilot-agent: flags differ between versions
	return cmd
}

// unknown returns a note for each flag in args that does not exist.
func unknown(flags *pflag.FlagSet, args []string) (notes []string) {
	for _, arg := range args {
		name, isFlag := strings.CutPrefix(arg, "--")
		if arg == "--" {
			break
		}
		if name, _, _ = strings.Cut(name, "="); isFlag && flags.Lookup(name) == nil {
			notes = append(notes, fmt.Sprintf("--%s has no effect: no such flag is known", name))
		}
	}
	return notes
}

// ownAddresses returns this machine's addresses, without loopback and link-local ones.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().IsGlobalUnicast() {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}
