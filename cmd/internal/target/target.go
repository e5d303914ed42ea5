// Package target has the flags by which users choose a cluster, a control plane and pods.
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

// ControlPlane has the flags of commands that connect to a cluster and its control plane.
type ControlPlane struct{ *kubeclient.Flags }

// Add adds the flags to a command.
func (c *ControlPlane) Add(cmd *cobra.Command) {
	c.Flags = kubeclient.NewFlags(installation.Namespace)
	c.Flags.Add(cmd.Flags(), "namespace of the control plane")
}

// Namespace returns the namespace of the control plane.
func (c *ControlPlane) Namespace() string { return *c.Flags.Namespace }

// Connect returns the clients of the cluster. They show their progress on standard error.
func (c *ControlPlane) Connect(cmd *cobra.Command) (*kubeclient.Client, error) {
	return Connect(cmd, c.Flags)
}

// Connect returns the clients of the cluster that the flags choose. They show their progress on standard error.
func Connect(cmd *cobra.Command, f *kubeclient.Flags) (*kubeclient.Client, error) {
	return f.Client(cli.NewProgress(cmd.ErrOrStderr()))
}

// Timeout adds the flag --timeout, whose value must be positive. The parameter usual is its default.
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
		return fmt.Errorf("--timeout=%s: must be more than nothing, such as %s", text, strings.Replace(t.usual.String(), "m0s", "m", 1))
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

// Type returns the name of the value's type for usage texts.
func (t timeout) Type() string { return "duration" }

// Pods has the flags that select pods, in a cluster or in files.
type Pods struct {
	*kubeclient.Flags
	All    bool     // pods of all namespaces
	Labels string   // label selector
	Files  []string // files that contain the pods; empty: the pods are in the cluster
}

// Add adds all flags except the one for Files.
func (p *Pods) Add(cmd *cobra.Command) {
	p.Flags = kubeclient.NewFlags("")
	p.Flags.Add(cmd.Flags(), "namespace of the pods; default: the context's")
	cmd.Flags().BoolVarP(&p.All, "all-namespaces", "A", false, "the pods of all namespaces")
	cmd.Flags().StringVarP(&p.Labels, "selector", "l", "", "labels of the pods, such as app=checkout")
}

// Check returns an error if a flag is invalid, or if flags contradict each other.
func (p *Pods) Check(cmd *cobra.Command) error {
	if p.All && cmd.Flags().Changed("namespace") {
		return &cli.UsageError{Err: errors.New("--namespace and --all-namespaces exclude one another")}
	}
	return CheckSelector(p.Labels)
}

// CheckSelector returns an error if a text is not a valid label selector.
func CheckSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--selector: %w", err), Hint: "as kubectl's, such as app=checkout,tier!=cache"}
	}
	return nil
}

// CheckNames returns an error if pods are chosen in two ways (files, names, flags). Unless enough is set, it also
// returns an error if they are chosen in none of these ways. It also makes the checks of [Pods.Check].
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

// Connect returns the clients of the cluster, and the namespace of the pods; an empty namespace means all.
func (p *Pods) Connect(cmd *cobra.Command) (client *kubeclient.Client, namespace string, err error) {
	client, err = Connect(cmd, p.Flags)
	if err == nil && !p.All {
		namespace = client.Namespace
	}
	return client, namespace, err
}

// Interruptible returns a context that ends at SIGINT or SIGTERM, so that a command can clean up and print its
// results before it exits.
func Interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
}

// A Refusal is a failure with a hint.
type Refusal struct {
	Err  error
	Then string // the hint
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Hint returns the hint, which a command prints after the error.
func (r *Refusal) Hint() string { return r.Then }
