// Command outriderd is Outrider's control plane: it sends proxies the configuration to which they subscribe,
// signs their certificates, and injects them into pods.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with explicit arguments and outputs. It returns the exit status: 0 for success, 1 for a
// failure, 2 for unusable input.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := &cobra.Command{
		Use:   "outriderd",
		Short: "the control plane of Outrider",
	}
	root.SetContext(ctx)
	root.AddCommand(newServe(), newToken(), newRotate(), newWebhookConfig(), cli.VersionCommand())
	return cli.Run(root, args, stdout, stderr, nil)
}
