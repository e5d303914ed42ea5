package world

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"outrider.dev/test/cluster"
)

// Restart kills a program of the node, such as the kubelet, starts it again with the same
// arguments, and waits until it answers.
func (w *World) Restart(ctx context.Context, name string) error {
	answers, ok := map[string][]string{
		"kubelet":        {"kubectl", "get", "--raw=/api/v1/nodes/node1/proxy/healthz"},
		"containerd":     {"ctr", "version"},
		"kube-apiserver": {"kubectl", "get", "--raw=/readyz"},
	}[name]
	if !ok {
		return fmt.Errorf("no program %q to restart", name)
	}
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		return err
	}
	if err := c.Restart(ctx, name); err != nil {
		return err
	}
	last := error(nil)
	err = w.Until(ctx, name+" answers", func() bool {
		last = exec.CommandContext(ctx, answers[0], answers[1:]...).Run()
		return last == nil
	})
	return errors.Join(err, last)
}
