package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/ca"
)

func newRotate() *cobra.Command {
	var where authorityFlags
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "request a new root for the mesh, without an interruption",
		Long: `Requests that the running outriderd replaces the mesh's root. First the next root is
published to every proxy. After --root-spread of outriderd serve it signs; with Hosts in the
mesh, after the longest life of a certificate. The old root stays trusted until the last
certificate that it signed has ended. Each step is in the log of outriderd.

Only a root that outriderd made is replaced. Replace one of your own where it comes from.`,
		Example: `  kubectl exec -n outrider-system deployment/outriderd -- /usr/local/bin/outriderd rotate
  outriderd rotate --ca-secret outrider-ca
  outriderd rotate --state ./state`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			if err := where.check("namespace"); err != nil {
				return err
			}
			store, err := where.store()
			if err != nil {
				return err
			}
			request, err := ca.RequestRotation(cmd.Context(), store, time.Now())
			if err != nil {
				return err
			}
			how := "requested"
			if !request.Requested {
				how = "was requested before"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: rotation %s; the root is now %s\n", store, how, request.Root)
			return nil
		},
	}
	where.add(cmd, "namespace")
	return cmd
}
