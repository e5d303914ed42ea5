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
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outrider.dev/internal/agent/config"
	"outrider.dev/internal/agent/proxy"
	"outrider.dev/internal/cli"
)

func newProxy(termination *terminationLog) *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:   "proxy [sidecar]",
		Short: "be the proxy's container: certificate, Envoy, readiness, stop",
		Long: `Runs Envoy as PID 1 of the proxy's container. It opens the status ports first, gets a
certificate, starts Envoy, tells everybody who waits when it is ready, restarts it where it
dies, and leaves last.

Settings are Istio's, by their names: flags, variables, the mesh's defaultConfig, PROXY_CONFIG
and the annotation proxy.istio.io/config. What is set and has no effect is logged.`,
		Example: `  POD_NAME=app-1 POD_NAMESPACE=shop SERVICE_ACCOUNT=app \
    outrider-agent proxy --control-plane outriderd.outrider-system.svc:15012 --work-dir /run/outrider`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"sidecar"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(cmd, level)
			if err != nil {
				return err
			}
			given := map[string]string{}
			cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = f.Value.String() })
			inputs := config.Inputs{Flags: given, Environ: os.Environ(), ReadFile: os.ReadFile, Addresses: ownAddresses}
			c, err := config.Read(inputs)
			if err != nil {
				return &cli.UsageError{Err: err, Hint: "outrider-agent proxy --help; the variables are Istio's"}
			}
			stop, cancel := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer cancel()
			status, err := proxy.Run(stop, context.Background(), proxy.Options{Config: c, Inputs: inputs, Log: log, TerminationMessage: termination.path})
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
	cmd.Flags().StringVar(&level, "log-level", "info", "the agent's own log: debug, info, warn or error")
	cmd.FParseErrWhitelist.UnknownFlags = true // as pilot-agent: flags come and go with versions
	return cmd
}

func logger(cmd *cobra.Command, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--log-level=%q: one of debug, info, warn, error", level)}
	}
	return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: l})), nil
}

// ownAddresses are this machine's, besides the loopback ones and those of one link.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(network.IP); ok && ip.Unmap().IsGlobalUnicast() {
			out = append(out, ip.Unmap())
		}
	}
	return out, nil
}
