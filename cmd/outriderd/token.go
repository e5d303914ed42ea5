package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
)

func newToken() *cobra.Command {
	var where authorityFlags
	var domain string
	var claim ca.Claim
	cmd := &cobra.Command{
		Use:   "token",
		Short: "make a token for a workload's first certificate, outside of Kubernetes",
		Long: `Prints a token with which a workload requests its first certificate. In a cluster the
kubelet puts one into each pod; with a folder of manifests this command creates it. The
certificate is then renewed as long as the folder has a pod of that service account. The token
is signed by a key in the state directory, so --state must be the directory of the running
outriderd; or by one in its Secret, with --ca-secret. Keep the token secret: until it expires,
it gives the identity of the workload.`,
		Example: `  outriderd token --state ./state --namespace shop --service-account app > token
  outriderd token --ca-secret outrider-ca --namespace shop --service-account app > token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			if claim.Namespace == "" || claim.ServiceAccount == "" {
				return &cli.UsageError{Err: fmt.Errorf("--namespace and --service-account are needed: they are the workload's identity"),
					Hint: cmd.Example}
			}
			if claim.TTL <= 0 {
				return &cli.UsageError{Err: fmt.Errorf("--ttl=%s: want a time that is positive, for example 1h", claim.TTL)}
			}
			if err := check("trust-domain", domain, trustDomain); err != nil {
				return err
			}
			if err := where.check(controlPlane); err != nil {
				return err
			}
			tokens, err := where.tokens(cmd.Context(), domain)
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
	where.add(cmd, controlPlane)
	f.StringVar(&domain, "trust-domain", mesh.DefaultTrustDomain, "trust domain of identities")
	f.StringVar(&claim.Namespace, "namespace", "", "the workload's namespace")
	f.StringVar(&claim.ServiceAccount, "service-account", "", "the workload's service account")
	f.DurationVar(&claim.TTL, "ttl", time.Hour, "how long the token is valid")
	cli.BindEnv(f, "trust-domain", "TRUST_DOMAIN")
	return cmd
}

// controlPlane is the flag for outriderd's namespace in commands whose flag --namespace is the workload's
// namespace.
const controlPlane = "control-plane-namespace"

// tokens returns the issuer of tokens that the running outriderd accepts.
func (a *authorityFlags) tokens(ctx context.Context, trustDomain string) (*ca.Tokens, error) {
	store, err := a.store()
	if err != nil {
		return nil, err
	}
	if a.secret == "" {
		return ca.NewTokens(a.state, trustDomain)
	}
	authority, err := ca.NewAuthority(ctx, ca.AuthorityOptions{Store: store, TrustDomain: trustDomain, StoreTokenKey: true})
	if err != nil {
		return nil, err
	}
	return authority.Tokens(), nil
}
