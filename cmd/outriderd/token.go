package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/mesh"
)

func newToken() *cobra.Command {
	var state, trustDomain string
	var claim ca.Claim
	cmd := &cobra.Command{
		Use:   "token",
		Short: "make a token for a workload's first certificate, outside of Kubernetes",
		Long: `Prints a token with which a workload requests its first certificate. In a cluster the
kubelet puts one into each pod; with a folder of manifests this command makes it. The
certificate then renews itself while the folder has a pod of that service account. The token
is signed by a key in the state directory, so --state must be the directory of the running
outriderd. Keep the token secret: until it expires, it gives the identity of the workload.`,
		Example: `  outriderd token --state ./state --namespace shop --service-account app > token`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if claim.Namespace == "" || claim.ServiceAccount == "" {
				return &cli.UsageError{Err: fmt.Errorf("--namespace and --service-account are needed: they are the workload's identity"),
					Hint: cmd.Example}
			}
			if claim.TTL <= 0 {
				return &cli.UsageError{Err: fmt.Errorf("--ttl=%s: want a time that is positive, for example 1h", claim.TTL)}
			}
			if _, err := os.Stat(state); err != nil {
				return &cli.UsageError{Err: fmt.Errorf("--state: %w", err), Hint: "it must be the directory of outriderd serve --state"}
			}
			tokens, err := ca.NewTokens(state, trustDomain)
			if err != nil {
				return err
			}
			token, err := tokens.Issue(claim, time.Now())
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", defaultState, "state directory of the running outriderd")
	f.StringVar(&trustDomain, "trust-domain", mesh.DefaultTrustDomain, "trust domain of identities")
	f.StringVar(&claim.Namespace, "namespace", "", "the workload's namespace")
	f.StringVar(&claim.ServiceAccount, "service-account", "", "the workload's service account")
	f.DurationVar(&claim.TTL, "ttl", time.Hour, "how long the token is valid")
	return cmd
}
