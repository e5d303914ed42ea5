package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/iptables"
	"outrider.dev/internal/capture/nftables"
	"outrider.dev/internal/cli"
)

type rulesOptions struct {
	intent  capture.Intent
	output  cli.Output
	backend string
	explain bool
	conn    connFlags
}

// connFlags describe one connection to follow through the rules.
type connFlags struct {
	to, as, in string
	udp        bool
	listening  []string
}

const rulesExamples = `  # the rules for these flags, as input for nft
  outrider rules -i '*' -b '*' -d 15090

  # every rule with its reason
  outrider rules -i '*' -b '*' --explain

  # where does a connection of uid 1000 go, and by which rules?
  outrider rules -i '*' -b '*' --explain --to 10.96.0.10:443 --as 1000

  # and one that comes in, when the proxy is not there yet?
  outrider rules -i '*' -b '*' --explain --in eth0 --to 10.244.0.7:8080

  # and when it is?
  outrider rules -i '*' -b '*' --explain --in eth0 --to 10.244.0.7:8080 --listening 15001,15006`

func newRules() *cobra.Command {
	o := &rulesOptions{intent: capture.Defaults()}
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "print and explain the rules that capture would write",
		Long: `Prints the rules that "outrider-agent capture" writes for the same flags, without
writing any. --explain gives the reason of each; with --to it follows one connection
through them and says where it ends.`,
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
	fs.SortFlags = false
	fs.BoolVar(&o.explain, "explain", false, "say why each rule is there")
	fs.StringVar(&o.conn.to, "to", "", "with --explain: follow a connection to ADDRESS:PORT")
	fs.StringVar(&o.conn.as, "as", "1000", "UID or UID:GID of the process that makes it")
	fs.StringVar(&o.conn.in, "in", "", "interface by which it comes in from outside")
	fs.BoolVar(&o.conn.udp, "udp", false, "it is UDP")
	fs.StringSliceVar(&o.conn.listening, "listening", nil, "local ports with a listener")
	cli.Choice(cmd, &o.backend, "backend", "", "rules for", capture.NFTables, capture.IPTables)
	cli.IntentFlags(fs, &o.intent, &o.output)
	return cmd
}

func (o *rulesOptions) run(cmd *cobra.Command) error {
	if err := cli.FinishIntent(cmd.Flags(), &o.intent); err != nil {
		return err
	}
	if o.intent.Families == 0 {
		o.intent.Families = capture.DualStack
	}
	rs, notes := capture.Build(o.intent, o.backend)
	for _, n := range notes {
		cli.Note(cmd, "%s", n)
	}
	text, err := o.text(rs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

func (o *rulesOptions) text(rs capture.Ruleset) (string, error) {
	switch {
	case o.conn.to != "" && !o.explain:
		return "", &cli.UsageError{Err: fmt.Errorf("--to needs --explain"), Hint: "add --explain"}
	case o.conn.to != "":
		conn, pod, err := o.conn.parse()
		if err != nil {
			return "", &cli.UsageError{Err: err}
		}
		return rs.Trace(conn, pod).String(), nil
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

// parse turns the flags into a connection and the pod around it.
func (f connFlags) parse() (capture.Conn, capture.Pod, error) {
	dst, err := netip.ParseAddrPort(f.to)
	if err != nil {
		return capture.Conn{}, capture.Pod{}, fmt.Errorf("--to=%q: write it like 10.96.0.10:80 or [fd00::1]:80", f.to)
	}
	c := capture.Conn{Proto: capture.TCP, Dst: dst, In: f.in, Out: "eth0"}
	if f.udp {
		c.Proto = capture.UDP
	}
	src := netip.IPv4Unspecified()
	if dst.Addr().Is6() {
		src = netip.IPv6Unspecified()
	}
	switch {
	case dst.Addr().IsLoopback():
		src, c.Out = dst.Addr(), "lo"
	case f.in != "":
		c.Out = ""
	}
	c.Src = netip.AddrPortFrom(src, 40000)
	uid, gid, two := strings.Cut(f.as, ":")
	if !two {
		gid = uid
	}
	for to, s := range map[*uint32]string{&c.UID: uid, &c.GID: gid} {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return c, capture.Pod{}, fmt.Errorf("--as=%q: write it like 1000 or 1000:1000", f.as)
		}
		*to = uint32(n)
	}
	var pod capture.Pod
	for _, s := range f.listening {
		port, err := capture.ParsePort(s)
		if err != nil {
			return c, pod, fmt.Errorf("--listening: %w", err)
		}
		for _, proto := range []uint32{capture.TCP, capture.UDP} {
			pod.Listeners = append(pod.Listeners, capture.Listener{Proto: proto, Port: port, Transparent: true})
		}
	}
	return c, pod, nil
}
