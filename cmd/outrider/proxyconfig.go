package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

type proxyConfigOptions struct {
	plane  debugSource
	output string
}

const proxyConfigExamples = `  # what one proxy was told, one line for each resource
  kubectl -n outrider-system port-forward deploy/outriderd 15014 &
  outrider proxy-config app-1.shop

  # its clusters as Envoy's JSON
  outrider proxy-config app-1.shop clusters -o json

  # keep all of it, and look at it later
  outrider proxy-config app-1.shop -o json > app-1.json
  outrider proxy-config -f app-1.json endpoints`

// configKinds are what can be asked for, and the types of configuration that it means.
var configKinds = []struct {
	name  string
	types []string
}{
	{"clusters", []string{"Cluster"}},
	{"listeners", []string{"Listener"}},
	{"endpoints", []string{"ClusterLoadAssignment"}},
	{"routes", []string{"RouteConfiguration", "ScopedRouteConfiguration", "VirtualHost"}},
	{"all", nil},
}

func configKindNames() (out []string) {
	for _, k := range configKinds {
		out = append(out, k.name)
	}
	return out
}

func newProxyConfig() *cobra.Command {
	o := &proxyConfigOptions{}
	names := configKindNames()
	cmd := &cobra.Command{
		Use:     "proxy-config POD[.NAMESPACE] [" + strings.Join(names, "|") + "]",
		Aliases: []string{"pc"},
		Short:   "print what one proxy was told",
		Long: `Asks outriderd what it told one proxy, which is named by its pod or by its whole ID, and
prints it: a line for each resource, or with -o json each with Envoy's own configuration. A
name that the proxy asked for and that the mesh does not have is there too, as "no such
name".

With -f an answer is read that was kept with -o json; then no pod is named.`,
		Example: proxyConfigExamples,
		Args:    cobra.MaximumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 || o.plane.file != "" {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: o.run,
	}
	o.plane.flags(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "how to print: text, json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *proxyConfigOptions) run(cmd *cobra.Command, args []string) error {
	if o.output != "text" && o.output != "json" {
		return &cli.UsageError{Err: fmt.Errorf("--output=%q: one of text, json", o.output)}
	}
	pod, kind, err := o.arguments(args)
	if err != nil {
		return err
	}
	all, err := o.told(cmd, pod)
	if err != nil {
		return err
	}
	if kind != nil {
		all = slices.DeleteFunc(all, func(t toldResource) bool { return !slices.Contains(kind, t.Type) })
	}
	if o.output == "json" {
		return cli.WriteJSON(cmd.OutOrStdout(), all)
	}
	return printTold(cmd.OutOrStdout(), all)
}

// arguments are the pod, which a file has already, and the types of configuration; none
// are all.
func (o *proxyConfigOptions) arguments(args []string) (pod string, types []string, err error) {
	if o.plane.file == "" {
		if len(args) == 0 {
			return "", nil, &cli.UsageError{Err: fmt.Errorf("which proxy? name a pod, or a file with -f"), Hint: "outrider proxy-status lists them"}
		}
		pod, args = args[0], args[1:]
	}
	switch len(args) {
	case 0:
		return pod, nil, nil
	case 2:
		return "", nil, &cli.UsageError{Err: fmt.Errorf("%s: the file given with -f is of one proxy; name none", args[0])}
	}
	for _, k := range configKinds {
		if k.name == args[0] || strings.TrimSuffix(k.name, "s") == args[0] {
			return pod, k.types, nil
		}
	}
	return "", nil, &cli.UsageError{Err: fmt.Errorf("%q: one of %s", args[0], strings.Join(configKindNames(), ", "))}
}

// A toldResource is one resource that a proxy was told.
type toldResource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Aliases []string        `json:"aliases,omitempty"`
	Version string          `json:"version"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// told is what one proxy was told.
func (o *proxyConfigOptions) told(cmd *cobra.Command, pod string) ([]toldResource, error) {
	id := pod
	if o.plane.file == "" && !strings.Contains(pod, "~") {
		all, err := o.plane.proxies(cmd)
		if err != nil {
			return nil, err
		}
		if id, err = oneProxy(all, pod); err != nil {
			return nil, err
		}
	}
	where, raw, err := o.plane.get(cmd, "/debug/proxy", url.Values{"id": {id}})
	if err != nil {
		return nil, err
	}
	out := []toldResource{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s: not what outriderd told a proxy: %w", where, err)}
	}
	for i, t := range out {
		if t.Type == "" {
			return nil, &cli.UsageError{Err: fmt.Errorf("%s: entry %d has no type: not what outriderd told a proxy", where, i+1),
				Hint: "a list of proxies is for outrider proxy-status -f"}
		}
	}
	return out, nil
}

// oneProxy is the ID of the one proxy that is meant.
func oneProxy(all []connectedProxy, pod string) (string, error) {
	found, err := matching(all, pod)
	if err != nil {
		return "", err
	}
	ids := map[string]bool{}
	var names []string
	for _, p := range found {
		if !ids[p.ID] {
			ids[p.ID] = true
			names = append(names, p.name())
		}
	}
	if len(names) > 1 {
		return "", &cli.UsageError{Err: fmt.Errorf("%q may be %s", pod, strings.Join(names, " or ")), Hint: "name one of them in full"}
	}
	return found[0].ID, nil
}

func printTold(w io.Writer, all []toldResource) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "nothing of that was told")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tNAME\tVERSION\tWHAT")
	for _, r := range all {
		what := "no such name"
		if len(r.Body) > 0 && string(r.Body) != "null" {
			what = summary(r.Type, r.Body)
		}
		if len(r.Aliases) > 0 {
			what = strings.TrimPrefix(what+"; asked for as "+strings.Join(r.Aliases, ", "), "; ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(r.Type), oneLine(r.Name), dash(r.Version), oneLine(what))
	}
	return t.Flush()
}
