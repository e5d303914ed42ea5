// Command outriderd is Outrider's control plane: it tells proxies what they need to know
// of the mesh, when they ask, signs their certificates, and injects them into pods.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 fine, 1 it failed, 2 the
// input cannot be used.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	root := &cobra.Command{
		Use:   "outriderd",
		Short: "the control plane of Outrider",
	}
	root.SetContext(ctx)
	root.AddCommand(newServe(), newToken(), newWebhookConfig(), cli.VersionCommand())
	return cli.Run(root, args, stdout, stderr, nil)
}
