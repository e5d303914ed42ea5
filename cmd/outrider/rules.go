package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/commandline"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/nftables"
	"outrider.dev/internal/core/capture/trace"
)

type rulesOptions struct {
	intent  capture.Intent
	output  cli.Output
	backend string
	explain bool
	query   trace.Query
}

const rulesExamples = `  # the rules for these flags, as input for nft
  outrider rules -i '*' -b '*' -d 15090

  # every rule with its reason
  outrider rules -i '*' -b '*' --explain

  # where a connection from uid 1000 ends, and which rules it matches
  outrider rules -i '*' -b '*' --explain --to 10.96.0.10:443 --as 1000

  # a call of the pod to itself, in a pod with this address
  outrider rules -i '*' -b '*' --explain --to 10.244.0.7:8080 --local 10.244.0.7

  # an inbound connection, before the proxy listens
  outrider rules -i '*' -b '*' --explain --in eth0 --to 10.244.0.7:8080

  # the same connection, once the proxy listens
  outrider rules -i '*' -b '*' --explain --in eth0 --to 10.244.0.7:8080 --listening 15001,15006`

func newRules() *cobra.Command {
	o := &rulesOptions{intent: capture.Defaults()}
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "print and explain the rules that capture would write",
		Long: `Prints the packet filter rules that "outrider-agent capture" writes for the same flags. It
changes nothing and needs no root. --explain prints the reason for each rule; with --to it
follows one connection through the rules and prints where it ends.

Where a connection ends also depends on the pod's addresses and routes. They are read from the
network namespace in which the command runs, unless it is the machine's own or --local gives the
addresses: then the command prints which ones it assumes.`,
		Example: rulesExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &cli.UsageError{Err: fmt.Errorf("%q is no flag", args[0]), Hint: "quote '*', or the shell replaces it by the names of files"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.explain, "explain", false, "print the reason for each rule")
	fs.StringVar(&o.query.To, "to", "", "with --explain: follow a connection to ADDRESS:PORT")
	fs.StringVar(&o.query.As, "as", "1000", "UID or UID:GID of the process that opens the connection")
	fs.StringVar(&o.query.In, "in", "", "interface on which the connection enters the pod; empty: a process of the pod opens it")
	fs.StringVar(&o.query.Out, "out", "", "interface by which the connection leaves the pod; empty: the route decides")
	fs.StringVar(&o.query.From, "from", "", "source address; empty: the kernel chooses it")
	fs.StringSliceVar(&o.query.Local, "local", nil, "addresses of the pod; empty: those of this network namespace")
	fs.BoolVar(&o.query.UDP, "udp", false, "follow UDP instead of TCP")
	fs.StringSliceVar(&o.query.Listening, "listening", nil, "local ports that have a listener")
	cli.Choice(cmd, &o.backend, "backend", "", "rules for", capture.NFTables, capture.IPTables)
	commandline.IntentFlags(fs, &o.intent, &o.output)
	return cmd
}

func (o *rulesOptions) run(cmd *cobra.Command) error {
	if err := commandline.FinishIntent(cmd.Flags(), &o.intent); err != nil {
		return err
	}
	var here trace.Network
	if o.query.To != "" {
		here = podNetwork()
	}
	network, err := o.query.Network(here)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	switch {
	case o.intent.Families != 0:
	case o.query.To != "" && network.Addrs != nil:
		o.intent.Families = capture.FamiliesOf(network.Addrs)
	default:
		o.intent.Families = capture.DualStack
	}
	rs, notes := capture.Build(o.intent, o.backend)
	for _, n := range notes {
		cli.Note(cmd, "%s", n)
	}
	text, err := o.text(rs, network)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

func (o *rulesOptions) text(rs capture.Ruleset, network trace.Network) (string, error) {
	switch {
	case o.query.To != "" && !o.explain:
		return "", &cli.UsageError{Err: fmt.Errorf("--to needs --explain"), Hint: "add --explain"}
	case o.query.To != "":
		text, err := o.query.Explain(rs, network)
		if err != nil {
			return "", &cli.UsageError{Err: err}
		}
		return text, nil
	case o.output == cli.JSON:
		var b strings.Builder
		err := cli.WriteJSON(&b, rs)
		return b.String(), err
	case rs.Empty():
		return "nothing is captured, nothing is parked\n", nil
	case o.explain:
		return rs.Explain(), nil
	case o.backend == capture.NFTables:
		return nftables.Script(rs), nil
	}
	return iptables.Script(rs)
}
