package operate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// proxyOptions are the options of proxy-status and proxy-config.
type proxyOptions struct {
	flags        *kubeclient.Flags
	controlPlane string // namespace of the control plane
	labels       string
	address      string
	file         string
	output       string
}

func (o *proxyOptions) add(cmd *cobra.Command, namespace string, outputs ...string) {
	fs := cmd.Flags()
	o.flags = kubeclient.NewFlags("")
	o.flags.Add(fs, namespace)
	fs.StringVar(&o.controlPlane, "control-plane-namespace", installation.Namespace, "namespace of the control plane")
	fs.StringVar(&o.address, "control-plane-http", "", "address of the HTTP server of one outriderd; default: the replicas in the cluster, through port forwarding")
	fs.StringVarP(&o.file, "filename", "f", "", "an answer that was saved with -o json: a file or a URL; '-' is standard input")
	cli.BindEnv(fs, "control-plane-http", "OUTRIDER_CONTROL_PLANE_HTTP")
	cli.CompleteFiles(cmd, "filename", "json")
	cli.Choice(cmd, &o.output, "output", "o", "how to print", outputs...)
}

// source returns the source that the flags choose: an outriderd at an address, or a saved file. It returns
// false if they choose none, so that the replicas in the cluster are the source.
func (o *proxyOptions) source(cmd *cobra.Command) (debugapi.Source, bool, error) {
	if err := cli.FromEnv(cmd.Flags()); err != nil {
		return debugapi.Source{}, false, err
	}
	if o.file == "" {
		return debugapi.Source{Address: o.address}, o.address != "", nil
	}
	name, data, err := cli.Read(cmd, o.file)
	if err != nil {
		return debugapi.Source{}, false, &cli.UsageError{Err: err}
	}
	return debugapi.Source{Saved: data, Name: name}, true, nil
}

// namespace returns the value of --namespace; empty means all.
func (o *proxyOptions) namespace() string { return *o.flags.Namespace }

// replicas reads the proxies of all replicas in the cluster. It prints a note for each replica that does not
// respond; complete is then false.
func (o *proxyOptions) replicas(cmd *cobra.Command) (set *replicas.Set, all []debugapi.Proxy, complete bool, err error) {
	client, err := target.Connect(cmd, o.flags)
	if err != nil {
		return nil, nil, false, err
	}
	set = replicas.In(client, o.controlPlane)
	answers, err := set.All(cmd.Context())
	complete = true
	for _, r := range answers {
		if r.Problem != "" {
			complete = false
			cli.Note(cmd, "replica %s did not answer, and its proxies are missing: %s", r.Name, r.Problem)
		}
	}
	return set, replicas.Proxies(answers), complete, err
}

// unusable turns an error about unusable input into a usage error, for which the exit status is 2.
func unusable(err error) error {
	var input *debugapi.InputError
	if errors.As(err, &input) {
		return &cli.UsageError{Err: err}
	}
	return err
}

const proxyStatusExamples = `  # every proxy that is connected, to which replica, and what it accepted
  outrider proxy-status

  # the proxies of a namespace, of an application, of one pod
  outrider proxy-status -n shop
  outrider proxy-status -n shop -l app=checkout
  outrider proxy-status app-1.shop

  # save the answer, and look at it later
  outrider proxy-status -o json > proxies.json
  outrider proxy-status -f proxies.json`

func NewProxyStatus() *cobra.Command {
	o := &proxyOptions{}
	cmd := &cobra.Command{
		Use:     "proxy-status [POD[.NAMESPACE]]",
		Aliases: []string{"ps"},
		Short:   "print what each proxy subscribed to, was sent, and accepted or rejected",
		Long: `Lists the proxies that are connected to each replica of outriderd. For each proxy and type of
resource it prints how many names the proxy subscribed to, how many resources it was sent, and which
version was sent and which was acknowledged. STATUS is "ok", "STALE" while a message is not
acknowledged, "REJECTED" with the proxy's own reason (it keeps the previous version), "NOT ENFORCED"
with an object of an unsupported kind that forbids something for the pod, "SKEW" if the agent or
Envoy has another version than the control plane, or "NOTE".

Exit status: 0 if every proxy is ok, also with SKEW; 1 for REJECTED or NOT ENFORCED, or if a
replica did not answer; 2 if the input is unusable.`,
		Example: proxyStatusExamples,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.status(cmd, strings.Join(args, "")) },
	}
	o.add(cmd, "namespace of the proxies; default: all", "table", "json")
	cmd.Flags().BoolP("all-namespaces", "A", false, "the proxies of all namespaces, which is the default")
	cmd.Flags().StringVarP(&o.labels, "selector", "l", "", "labels of the pods, such as app=checkout")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return cmd
}

// list returns the proxies that the flags select. complete is false if some replicas did not respond.
func (o *proxyOptions) list(cmd *cobra.Command) (proxies []debugapi.Proxy, complete bool, err error) {
	if err := target.CheckSelector(o.labels); err != nil {
		return nil, false, err
	}
	source, given, err := o.source(cmd)
	switch {
	case err != nil:
		return nil, false, err
	case given && o.labels != "":
		return nil, false, &cli.UsageError{Err: errors.New("--selector needs the cluster, and a file or an address is given")}
	case given:
		proxies, err = source.Proxies(cmd.Context())
		return replicas.InNamespace(proxies, o.namespace()), true, unusable(err)
	}
	set, all, complete, err := o.replicas(cmd)
	if err != nil {
		return nil, false, err
	}
	defer set.Close()
	proxies, err = set.Select(cmd.Context(), all, o.namespace(), o.labels)
	return proxies, complete, err
}

func (o *proxyOptions) status(cmd *cobra.Command, pod string) error {
	proxies, complete, err := o.list(cmd)
	if err == nil && pod != "" {
		proxies, err = debugapi.Find(proxies, pod)
	}
	if err != nil {
		return err
	}
	if err := view.Proxies(cmd.OutOrStdout(), o.output, proxies); err != nil {
		return err
	}
	if !complete || slices.ContainsFunc(proxies, debugapi.Proxy.Failed) {
		return &cli.ExitError{Status: cli.Failed} // without a message: the reason is already printed
	}
	return nil
}

const proxyConfigExamples = `  # what was sent to one proxy, one line for each resource
  outrider proxy-config app-1.shop

  # its clusters as Envoy's JSON
  outrider proxy-config app-1.shop clusters -o json

  # save all of it, and look at it later
  outrider proxy-config app-1.shop -o json > app-1.json
  outrider proxy-config -f app-1.json endpoints`

func NewProxyConfig() *cobra.Command {
	o := &proxyOptions{}
	names := debugapi.KindNames()
	cmd := &cobra.Command{
		Use:     "proxy-config POD[.NAMESPACE] [" + strings.Join(names, "|") + "]",
		Aliases: []string{"pc"},
		Short:   "print the resources that one proxy was sent",
		Long: `Prints the resources that outriderd sent to one proxy: a line for each, or with -o json Envoy's own
configuration. They come from the replica to which the proxy is connected. The proxy is given by its
pod or by its complete ID. A name that the proxy subscribed to and that the mesh does not have is
listed as "no such name".

With -f it reads an answer that was saved with -o json; then no pod is given.`,
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
	o.add(cmd, "namespace of the pod; default: any", "text", "json")
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
	source, given, err := o.source(cmd)
	if err == nil && !given {
		set, proxies, _, err := o.replicas(cmd)
		if err != nil {
			return err
		}
		defer set.Close()
		one, err := debugapi.FindOne(replicas.InNamespace(proxies, o.namespace()), pod)
		if err != nil {
			return unusable(err)
		}
		pod = one.ID
		if source.Address, err = set.Monitoring(cmd.Context(), one.Replica); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	all, err := source.Resources(cmd.Context(), pod)
	if err != nil {
		return unusable(err)
	}
	return view.Resources(cmd.OutOrStdout(), o.output, kind.Select(all))
}
