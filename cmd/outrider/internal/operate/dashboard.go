package operate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/replicas"
)

const dashboardExamples = `  # open the status page of the control plane
  outrider dashboard

  # print its address, at a port of your choice
  outrider dashboard --browser=false --port 8080`

type dashboardOptions struct {
	target.ControlPlane
	port    int
	browser bool
	replica string
}

func NewDashboard() *cobra.Command {
	o := &dashboardOptions{}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "open the status page of the control plane",
		Long: `Forwards a port of this machine to each replica of the control plane, prints the addresses of
their status pages, and opens the first one in the browser. A page shows one replica: its
version, readiness, roots, services, and the proxies that are connected to it.

The command ends with Ctrl-C, or when no replica is connected any more. Exit status: 0 after a signal, 1
if no replica can be reached, 2 if the input is unusable.`,
		Example: dashboardExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.Add(cmd)
	fs := cmd.Flags()
	fs.IntVar(&o.port, "port", 0, "local port of the first page; 0 is a free one")
	fs.BoolVar(&o.browser, "browser", true, "open the first page in the browser")
	fs.StringVar(&o.replica, "replica", "", "the pod of one replica; default: all")
	return cmd
}

func (o *dashboardOptions) run(cmd *cobra.Command) error {
	if o.port < 0 || o.port > 65535 {
		return &cli.UsageError{Err: fmt.Errorf("--port=%d: must be 0 to 65535", o.port)}
	}
	client, err := o.Connect(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := target.Interruptible(cmd)
	defer cancel()
	pods, err := replicas.In(client, o.Namespace()).Pods(ctx)
	if err != nil {
		return err
	}
	if o.replica != "" {
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Name != o.replica })
	}
	if len(pods) == 0 {
		return fmt.Errorf("%w in namespace %s", replicas.ErrNone, o.Namespace())
	}
	var failures []error
	ended := make(chan error, len(pods))
	open := 0
	for i, p := range pods {
		local := 0
		if i == 0 {
			local = o.port
		}
		address, lost, stop, err := client.ForwardTo(ctx, local, p.Namespace, p.Name, contract.MonitoringPort)
		if err != nil && local != 0 {
			return err // do not use a port other than the requested one
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		defer stop()
		page := "http://" + address + contract.StatusPath
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", p.Name, page)
		if open++; open == 1 && o.browser {
			if err := cli.Browse(page); err != nil {
				cli.Note(cmd, "no browser was opened: %v", err)
			}
		}
		go func() { ended <- fmt.Errorf("%s: %w", p.Name, <-lost) }()
	}
	for ; open > 0; open-- {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			failures = append(failures, err)
			cli.Note(cmd, "%v", err)
		}
	}
	return errors.Join(failures...)
}
