package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/controlplane/debugapi"
	"outrider.dev/internal/view"
)

// proxyOptions are those of proxy-status and proxy-config.
type proxyOptions struct {
	address string
	file    string
	output  string
}

func (o *proxyOptions) flags(cmd *cobra.Command, outputs ...string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.address, "control-plane-http", "http://localhost:15014", "address of outriderd's HTTP server")
	fs.StringVarP(&o.file, "filename", "f", "", "an answer that was saved with -o json; '-' is standard input")
	cli.BindEnv(fs, "control-plane-http", "OUTRIDER_CONTROL_PLANE_HTTP")
	cli.CompleteFiles(cmd, "filename", "json")
	cli.Choice(cmd, &o.output, "output", "o", "how to print", outputs...)
}

// source is the outriderd, or the saved file, with the answers.
func (o *proxyOptions) source(cmd *cobra.Command) (debugapi.Source, error) {
	if err := cli.FromEnv(cmd.Flags()); err != nil {
		return debugapi.Source{}, err
	}
	if o.file == "" {
		return debugapi.Source{Address: o.address}, nil
	}
	name, data, err := cli.Read(cmd, o.file)
	if err != nil {
		return debugapi.Source{}, &cli.UsageError{Err: err}
	}
	return debugapi.Source{Saved: data, Name: name}, nil
}

// unusable marks errors of the input; the command prints their hints.
func unusable(err error) error {
	var input *debugapi.InputError
	if errors.As(err, &input) {
		return &cli.UsageError{Err: err}
	}
	return err
}

const proxyStatusExamples = `  # every proxy that is connected, and what it accepted
  kubectl -n outrider-system port-forward deploy/outriderd 15014 &
  outrider proxy-status

  # the proxies of one pod, or of the pods of that name in every namespace
  outrider proxy-status app-1.shop
  outrider proxy-status app-1

  # save the answer, and look at it later
  outrider proxy-status -o json > proxies.json
  outrider proxy-status -f proxies.json`

func newProxyStatus() *cobra.Command {
	o := &proxyOptions{}
	cmd := &cobra.Command{
		Use:     "proxy-status [POD[.NAMESPACE]]",
		Aliases: []string{"ps"},
		Short:   "print what each proxy subscribed to, was sent, and accepted or rejected",
		Long: `Gets the proxies that are connected to outriderd, and prints for each, by type of
resource, how many names it subscribed to, how many resources it was sent, and which
version was sent and which accepted. STATUS is "ok", "STALE" while a message has no answer,
"REJECTED" with the proxy's own reason (it still works by the version before), "NOT ENFORCED"
with an object that forbids something for the pod by a kind that is not supported, or "NOTE".

Exit status: 1 for REJECTED or NOT ENFORCED, 2 without an answer. A replica lists its own.`,
		Example: proxyStatusExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.status(cmd, strings.Join(args, "")) },
	}
	o.flags(cmd, "table", "json")
	return cmd
}

func (o *proxyOptions) status(cmd *cobra.Command, pod string) error {
	source, err := o.source(cmd)
	if err != nil {
		return err
	}
	proxies, err := source.Proxies(cmd.Context())
	if err != nil {
		return unusable(err)
	}
	if pod != "" {
		if proxies, err = debugapi.Find(proxies, pod); err != nil {
			return err
		}
	}
	if err := view.Proxies(cmd.OutOrStdout(), o.output, proxies); err != nil {
		return err
	}
	if slices.ContainsFunc(proxies, debugapi.Proxy.Failed) {
		return &cli.ExitError{Status: cli.Failed} // the reason is printed
	}
	return nil
}

const proxyConfigExamples = `  # what was sent to one proxy, one line for each resource
  kubectl -n outrider-system port-forward deploy/outriderd 15014 &
  outrider proxy-config app-1.shop

  # its clusters as Envoy's JSON
  outrider proxy-config app-1.shop clusters -o json

  # save all of it, and look at it later
  outrider proxy-config app-1.shop -o json > app-1.json
  outrider proxy-config -f app-1.json endpoints`

func newProxyConfig() *cobra.Command {
	o := &proxyOptions{}
	names := debugapi.KindNames()
	cmd := &cobra.Command{
		Use:     "proxy-config POD[.NAMESPACE] [" + strings.Join(names, "|") + "]",
		Aliases: []string{"pc"},
		Short:   "print the resources that one proxy was sent",
		Long: `Gets the resources that outriderd sent to one proxy, which is named by its pod or by its
whole ID, and prints them: a line for each, or with -o json Envoy's own configuration. A
name that the proxy subscribed to and that the mesh does not have is there too, as "no such
name".

With -f an answer is read that was saved with -o json; then no pod is named.`,
		Example: proxyConfigExamples,
		Args:    cobra.MaximumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 || o.file != "" {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: o.config,
	}
	o.flags(cmd, "text", "json")
	return cmd
}

func (o *proxyOptions) config(cmd *cobra.Command, args []string) error {
	pod := ""
	if o.file == "" {
		if len(args) == 0 {
			return &cli.UsageError{Err: errors.New("no proxy is named: name a pod, or a file with -f"), Hint: "outrider proxy-status lists them"}
		}
		pod, args = args[0], args[1:]
	}
	if len(args) == 2 {
		return &cli.UsageError{Err: fmt.Errorf("%s: the file given with -f is of one proxy; do not name one", args[0])}
	}
	kind, err := debugapi.ParseKind(strings.Join(args, ""))
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	source, err := o.source(cmd)
	if err != nil {
		return err
	}
	all, err := source.Resources(cmd.Context(), pod)
	if err != nil {
		return unusable(err)
	}
	return view.Resources(cmd.OutOrStdout(), o.output, kind.Select(all))
}
