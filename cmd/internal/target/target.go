// Package target has the flags by which commands say which cluster, control plane and pods they are about.
package target

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

// ControlPlane has the flags of commands that talk to a cluster in which the control plane is.
type ControlPlane struct{ *kubeclient.Flags }

// Add adds the flags to a command.
func (c *ControlPlane) Add(cmd *cobra.Command) {
	c.Flags = kubeclient.NewFlags(installation.Namespace)
	c.Flags.Add(cmd.Flags(), "namespace of the control plane")
}

// Namespace returns the namespace of the control plane.
func (c *ControlPlane) Namespace() string { return *c.Flags.Namespace }

// Connect returns the clients of the cluster, with a progress on standard error.
func (c *ControlPlane) Connect(cmd *cobra.Command) (*kubeclient.Client, error) {
	return Connect(cmd, c.Flags)
}

// Connect returns the clients of the cluster that flags choose, with a progress on standard error.
func Connect(cmd *cobra.Command, f *kubeclient.Flags) (*kubeclient.Client, error) {
	return f.Client(cli.NewProgress(cmd.ErrOrStderr()))
}

// Timeout adds the flag --timeout, whose value is more than nothing.
func Timeout(cmd *cobra.Command, value *time.Duration, usual time.Duration, usage string) {
	*value = usual
	cmd.Flags().Var(timeout{value, usual}, "timeout", usage)
}

type timeout struct {
	value *time.Duration
	usual time.Duration
}

func (t timeout) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("--timeout=%s: must be more than nothing, such as %s", text, strings.TrimSuffix(t.usual.String(), "0s"))
	}
	*t.value = d
	return nil
}

func (t timeout) String() string {
	if t.value == nil {
		return ""
	}
	return t.value.String()
}

// Type names the type in a usage text.
func (t timeout) Type() string { return "duration" }

// Pods select pods of a cluster, of files, or by their names.
type Pods struct {
	*kubeclient.Flags
	All    bool     // of all namespaces
	Labels string   // a selector
	Files  []string // default: none, the pods are in the cluster
}

// Add adds the flags but that of files.
func (p *Pods) Add(cmd *cobra.Command) {
	p.Flags = kubeclient.NewFlags("")
	p.Flags.Add(cmd.Flags(), "namespace of the pods; default: the context's")
	cmd.Flags().BoolVarP(&p.All, "all-namespaces", "A", false, "the pods of all namespaces")
	cmd.Flags().StringVarP(&p.Labels, "selector", "l", "", "labels of the pods, such as app=checkout")
}

// Check refuses flags that cannot be used, or contradict each other.
func (p *Pods) Check(cmd *cobra.Command) error {
	if p.All && cmd.Flags().Changed("namespace") {
		return &cli.UsageError{Err: errors.New("--namespace and --all-namespaces exclude one another")}
	}
	return CheckSelector(p.Labels)
}

// CheckSelector refuses a text that selects no labels.
func CheckSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--selector: %w", err), Hint: "as kubectl's, such as app=checkout,tier!=cache"}
	}
	return nil
}

// CheckNames refuses what names pods in two ways, or in none: enough says that no more is needed.
func (p *Pods) CheckNames(cmd *cobra.Command, names []string, enough bool, hint string) error {
	selects := p.All || p.Labels != ""
	switch {
	case len(p.Files) > 0 && (selects || len(names) > 0):
		return &cli.UsageError{Err: errors.New("-f is for the pods of files: name no pod, and select none")}
	case len(names) > 0 && selects:
		return &cli.UsageError{Err: errors.New("a pod is named: -A and -l select others")}
	case len(p.Files) == 0 && len(names) == 0 && !selects && !enough:
		return &cli.UsageError{Err: errors.New("no pod is named"), Hint: hint}
	}
	return p.Check(cmd)
}

// Connect returns the clients of the cluster, and the namespace of the pods; an empty one is all.
func (p *Pods) Connect(cmd *cobra.Command) (client *kubeclient.Client, namespace string, err error) {
	client, err = Connect(cmd, p.Flags)
	if err == nil && !p.All {
		namespace = client.Namespace
	}
	return client, namespace, err
}

// Interruptible returns the context of a command that ends in order, with what it has until then.
func Interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
}

// A Refusal is a failure with a hint.
type Refusal struct {
	Err  error
	Then string // the hint
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Hint says what to do.
func (r *Refusal) Hint() string { return r.Then }
