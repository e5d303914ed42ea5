// Command outriderd is Outrider's control plane: it serves proxies the configuration that
// they subscribe to, signs their certificates, and injects them into pods.
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

// run is main without access to the process. It returns the exit status: 0 success, 1 a failure, 2
// unusable input.
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
