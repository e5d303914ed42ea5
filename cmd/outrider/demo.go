//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/lab/demo"
	"outrider.dev/internal/lab/localpod"
)

func newDemo() *cobra.Command {
	var o demo.Options
	var out, log string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: demoShort,
		Long: `Runs one pod six times. Its app fetches its configuration when it starts, and exits if the
connection is refused. The pod has a real Envoy, too, started by outrider-agent and configured
by outriderd with some thousand services. Containers are processes on this machine, started
and restarted by the kubelet's rules, in network namespaces; nothing is left when it ends. It
takes less than a minute and needs root.

The exit status is 1 if an act did not go as described.`,
		Example: `  sudo outrider demo --report demo.html
  sudo outrider demo --act 1 --act 5 --services 5000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			t := cli.TerminalOf(o.Out)
			o.Width, o.Color = t.Columns, t.Colour
			if err := o.Check(); err != nil {
				return &cli.UsageError{Err: err}
			}
			own, err := os.Executable()
			if err != nil {
				return err
			}
			if o.Programs.Envoy == "" {
				o.Programs.Envoy = os.Getenv("ENVOY")
			}
			if missing, err := o.Programs.Find(own); err != nil {
				return &cli.UsageError{Err: err, Hint: "give it by " + missing + "; make demo builds and installs everything"}
			}
			if log != "" {
				f, err := os.Create(log)
				if err != nil {
					return &cli.UsageError{Err: fmt.Errorf("--log: %w", err)}
				}
				defer f.Close()
				o.Log = f
			}
			if out != "" { // if the file cannot be written, fail before the acts run
				if err := os.WriteFile(out, nil, 0o644); err != nil {
					return &cli.UsageError{Err: fmt.Errorf("--report: %w", err)}
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			all, err := demo.Run(ctx, o)
			var unfit *demo.ProgramError
			switch {
			case errors.Is(err, localpod.ErrNotRoot):
				return &cli.UsageError{Err: err, Hint: "sudo " + strings.Join(os.Args, " ")}
			case errors.As(err, &unfit):
				return &cli.UsageError{Err: err}
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(o.Out)
			if err := demo.Table(o.Out, all); err != nil {
				return err
			}
			if out != "" {
				if err := demo.WriteReport(out, all, o.Services, strings.Join(append([]string{"outrider"}, os.Args[1:]...), " ")); err != nil {
					return err
				}
				fmt.Fprintf(o.Out, "\nwith pictures: %s\n", out)
			}
			if missed := demo.Missed(all); len(missed) > 0 {
				return errors.New("the demo did not go as described: " + strings.Join(missed, "; "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Services, "services", 3000, "services of the mesh")
	f.IntSliceVar(&o.Acts, "act", nil, "only this act; may be repeated")
	f.StringVar(&out, "report", "", "file for a web page of the acts; one picture if its name ends in .svg")
	f.StringVar(&log, "log", "", "file for the output of the containers")
	f.StringVar(&o.Programs.Agent, "agent", "", "outrider-agent (default: next to this program, or in PATH)")
	f.StringVar(&o.Programs.ControlPlane, "control-plane", "", "outriderd (default: as for --agent)")
	f.StringVar(&o.Programs.Envoy, "envoy", "", "Envoy (default: $ENVOY, else as for --agent)")
	cmd.AddCommand(newDemoApp())
	return cmd
}

// newDemoApp returns the command of the app that the demo runs in its pods.
func newDemoApp() *cobra.Command {
	app := &demo.App{}
	cmd := &cobra.Command{
		Use:    "app",
		Short:  "awesome-app, which the demo runs in its pods",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			app.Out = cmd.OutOrStdout()
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			if status := app.Run(ctx); status != 0 {
				return &cli.ExitError{Status: status}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&app.Config, "config", "", "URL of the config centre")
	cmd.Flags().StringVar(&app.Listen, "listen", ":8080", "address to serve on")
	cmd.Flags().IntVar(&app.Calls, "calls", 0, "exit after this number of calls, as a Job does; 0: serve")
	return cmd
}
