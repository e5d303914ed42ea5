package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/install"
	"outrider.dev/internal/ops/kubeclient"
)

// clusterFlags are those of commands that talk to a cluster in which the control plane is.
type clusterFlags struct{ *kubeclient.Flags }

func (c *clusterFlags) add(cmd *cobra.Command) {
	c.Flags = kubeclient.NewFlags(install.Namespace)
	c.Flags.Add(cmd.Flags(), "namespace of the control plane")
}

// namespace is the control plane's.
func (c *clusterFlags) namespace() string { return *c.Flags.Namespace }

func (c *clusterFlags) client() (*kubeclient.Client, error) { return clientOf(c.Flags) }

// clientOf returns the cluster's clients; flags that name none are unusable input.
func clientOf(f *kubeclient.Flags) (*kubeclient.Client, error) {
	client, err := f.Client()
	var config *kubeclient.ConfigError
	if errors.As(err, &config) {
		return nil, &cli.UsageError{Err: err, Hint: config.Hint()}
	}
	return client, err
}

// podFlags select pods of a cluster, of files, or by their names.
type podFlags struct {
	*kubeclient.Flags
	all    bool
	labels string
	files  []string
}

// add adds the flags but that of files.
func (p *podFlags) add(cmd *cobra.Command) {
	p.Flags = kubeclient.NewFlags("")
	p.Flags.Add(cmd.Flags(), "namespace of the pods; default: the context's")
	cmd.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "the pods of all namespaces")
	cmd.Flags().StringVarP(&p.labels, "selector", "l", "", "labels of the pods, such as app=checkout")
}

// check refuses flags that cannot be used, or contradict each other.
func (p *podFlags) check(cmd *cobra.Command) error {
	if p.all && cmd.Flags().Changed("namespace") {
		return &cli.UsageError{Err: errors.New("--namespace and --all-namespaces exclude one another")}
	}
	return checkSelector(p.labels)
}

func checkSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--selector: %w", err), Hint: "as kubectl's, such as app=checkout,tier!=cache"}
	}
	return nil
}

// checkNames refuses what names pods in two ways, or in none: enough says that no more is needed.
func (p *podFlags) checkNames(cmd *cobra.Command, names []string, enough bool, hint string) error {
	selects := p.all || p.labels != ""
	switch {
	case len(p.files) > 0 && (selects || len(names) > 0):
		return &cli.UsageError{Err: errors.New("-f is for the pods of files: name no pod, and select none")}
	case len(names) > 0 && selects:
		return &cli.UsageError{Err: errors.New("a pod is named: -A and -l select others")}
	case len(p.files) == 0 && len(names) == 0 && !selects && !enough:
		return &cli.UsageError{Err: errors.New("no pod is named"), Hint: hint}
	}
	return p.check(cmd)
}

// connect returns the cluster's clients, and the namespace of the pods; an empty one is all.
func (p *podFlags) connect() (client *kubeclient.Client, namespace string, err error) {
	client, err = clientOf(p.Flags)
	if err == nil && !p.all {
		namespace = client.Namespace
	}
	return client, namespace, err
}

// interruptible is the context of a command that ends in order, with what it has until then.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
}
