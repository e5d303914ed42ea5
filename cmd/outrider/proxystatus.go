package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

type proxyStatusOptions struct {
	plane  debugSource
	output string
}

const proxyStatusExamples = `  # every proxy that is connected, and what it accepted
  kubectl -n outrider-system port-forward deploy/outriderd 15014 &
  outrider proxy-status

  # the proxies of one pod, or of the pods of that name in every namespace
  outrider proxy-status app-1.shop
  outrider proxy-status app-1

  # keep the answer, and look at it later
  outrider proxy-status -o json > proxies.json
  outrider proxy-status -f proxies.json`

func newProxyStatus() *cobra.Command {
	o := &proxyStatusOptions{}
	cmd := &cobra.Command{
		Use:     "proxy-status [POD[.NAMESPACE]]",
		Aliases: []string{"ps"},
		Short:   "print what each proxy asked for, was told, and accepted or rejected",
		Long: `Asks outriderd which proxies are connected to it, and prints for each, by type of
configuration, how many names it asked for, how many resources it was told, which version
was sent and which accepted. STATUS is "ok", "STALE" while a message is without an answer, or
"REJECTED" with the proxy's own reason: the proxy then still works by the version before.

Each replica of outriderd knows the proxies that are connected to it.
The exit status is 1 if a proxy rejected something, 2 if nobody answers.`,
		Example: proxyStatusExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd, strings.Join(args, "")) },
	}
	o.plane.flags(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "table", "how to print: table, json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *proxyStatusOptions) run(cmd *cobra.Command, pod string) error {
	if o.output != "table" && o.output != "json" {
		return &cli.UsageError{Err: fmt.Errorf("--output=%q: one of table, json", o.output)}
	}
	proxies, err := o.plane.proxies(cmd)
	if err != nil {
		return err
	}
	if pod != "" {
		if proxies, err = matching(proxies, pod); err != nil {
			return err
		}
	}
	if err := o.print(cmd.OutOrStdout(), proxies); err != nil {
		return err
	}
	if slices.ContainsFunc(proxies, connectedProxy.rejected) {
		return &cli.ExitError{Status: cli.Failed} // what was printed has said it
	}
	return nil
}

func (o *proxyStatusOptions) print(w io.Writer, proxies []connectedProxy) error {
	if o.output == "table" {
		return printProxies(w, proxies)
	}
	raw := []json.RawMessage{}
	for _, p := range proxies {
		raw = append(raw, p.raw)
	}
	return cli.WriteJSON(w, raw)
}

// A connectedProxy is what outriderd says of one proxy. Package xds has the whole; here
// is what is shown.
type connectedProxy struct {
	ID        string       `json:"id"`
	Namespace string       `json:"namespace"`
	Workload  string       `json:"workload"`
	Protocol  string       `json:"protocol"`
	OnDemand  bool         `json:"onDemand"`
	Since     time.Time    `json:"since"`
	Types     []proxyTypes `json:"types"`
	Excess    int          `json:"excess"`

	raw json.RawMessage
}

type proxyTypes struct {
	Type     string   `json:"type"`
	Sent     string   `json:"sent"`
	Acked    string   `json:"acked"`
	Pending  int      `json:"pending"`
	Wildcard bool     `json:"wildcard"`
	Asked    []string `json:"asked"`
	Told     int      `json:"told"`
	Rejected *struct {
		Version string    `json:"version"`
		Reason  string    `json:"reason"`
		Time    time.Time `json:"time"`
	} `json:"rejected"`
}

// UnmarshalJSON also keeps the text, for who wants all of it.
func (p *connectedProxy) UnmarshalJSON(raw []byte) error {
	type plain connectedProxy
	if err := json.Unmarshal(raw, (*plain)(p)); err != nil {
		return err
	}
	p.raw = slices.Clone(raw)
	return nil
}

// name is pod.namespace, as the proxy's ID has it: role~address~name~domain.
func (p connectedProxy) name() string {
	if parts := strings.Split(p.ID, "~"); len(parts) == 4 {
		return parts[2]
	}
	return p.ID
}

func (p connectedProxy) is(pod string) bool {
	return p.ID == pod || p.name() == pod || p.Workload == pod || strings.TrimSuffix(p.name(), "."+p.Namespace) == pod
}

func (p connectedProxy) rejected() bool {
	return slices.ContainsFunc(p.Types, func(t proxyTypes) bool { return t.Rejected != nil })
}

// matching are the proxies of a pod.
func matching(all []connectedProxy, pod string) ([]connectedProxy, error) {
	var out []connectedProxy
	var names []string
	for _, p := range all {
		if names = append(names, p.name()); p.is(pod) {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no proxy %q: none is connected to this outriderd", pod)
	}
	if len(names) > 10 {
		names = append(names[:10], "...")
	}
	return nil, fmt.Errorf("no proxy %q is connected to this outriderd; there are %s", pod, strings.Join(names, ", "))
}

// status is what became of the last message.
func (t proxyTypes) status() string {
	switch {
	case t.Rejected != nil:
		return fmt.Sprintf("REJECTED %s: %s", t.Rejected.Version, oneLine(t.Rejected.Reason))
	case t.Pending == 1:
		return "STALE: 1 message without an answer"
	case t.Pending > 1:
		return fmt.Sprintf("STALE: %d messages without an answer", t.Pending)
	case t.Sent == "":
		return "nothing sent"
	case t.Acked == "":
		return "STALE: never accepted"
	}
	return "ok"
}

// oneLine is somebody else's text in a table.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}

func printProxies(w io.Writer, proxies []connectedProxy) error {
	if len(proxies) == 0 {
		_, err := fmt.Fprintln(w, "no proxy is connected to this outriderd")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPROTOCOL\tON DEMAND\tSINCE\tTYPE\tASKED\tTOLD\tSENT\tACKED\tSTATUS")
	for _, p := range proxies {
		head := []string{oneLine(p.name()), p.Protocol, yesNo(p.OnDemand), p.Since.UTC().Format("2006-01-02T15:04:05Z")}
		if len(p.Types) == 0 {
			fmt.Fprintln(t, strings.Join(append(head, "-", "-", "-", "-", "-", "nothing asked"), "\t"))
		}
		for _, k := range p.Types {
			fmt.Fprintln(t, strings.Join(append(head, k.Type, k.names(), fmt.Sprint(k.Told), dash(k.Sent), dash(k.Acked), k.status()), "\t"))
			head = []string{"", "", "", ""}
		}
		if p.Excess > 0 {
			fmt.Fprintf(t, "\t\t\t\t-\t%d\t-\t-\t-\tbeyond the bound: answered, and not followed\n", p.Excess)
		}
	}
	return t.Flush()
}

// names says what was asked for.
func (t proxyTypes) names() string {
	if t.Wildcard {
		return "all"
	}
	return fmt.Sprint(len(t.Asked))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
