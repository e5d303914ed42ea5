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
		Short: "rotate the mesh's root without an interruption",
		Long: `Requests that the running outriderd replaces the mesh's root. First the next root is published to
every proxy. It signs certificates after --root-spread of outriderd serve; with Hosts in the mesh,
after the longest lifetime of a certificate. The old root stays trusted until the last certificate
that it signed has expired. Outriderd logs each step.

Only a root that outriderd created is rotated. Rotate your own root at its source.`,
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
