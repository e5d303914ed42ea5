package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
)

// caSecretEnv is the environment variable for --ca-secret, so that commands in outriderd's container need no
// flag.
const caSecretEnv = contract.AuthoritySecretEnv

// authorityFlags are the flags that locate the authority of the running outriderd.
type authorityFlags struct {
	state, secret string
	namespace     string // namespace of outriderd
	kubernetes    clusterFlags
}

// add adds the flags to a command. spot is the name of the flag for outriderd's namespace.
func (a *authorityFlags) add(cmd *cobra.Command, spot string) {
	f := cmd.Flags()
	f.StringVar(&a.state, "state", defaultState, "state directory of the running outriderd")
	f.StringVar(&a.secret, "ca-secret", "", "the Secret with its authority, in place of --state")
	f.StringVar(&a.kubernetes.kubeconfig, "kubeconfig", "", "with --ca-secret, kubeconfig of the cluster (default: the pod's service account, else kubectl's file)")
	f.StringVar(&a.namespace, spot, mesh.DefaultRoot, "namespace that outriderd runs in")
	cli.BindEnv(f, "ca-secret", caSecretEnv)
	cli.BindEnv(f, spot, "POD_NAMESPACE")
}

// check returns an error if a value is invalid. For the argument spot see [authorityFlags.add].
func (a *authorityFlags) check(spot string) error {
	if a.secret == "" {
		return nil
	}
	if err := check("ca-secret", a.secret, secretName); err != nil {
		return err
	}
	return check(spot, a.namespace, dnsLabel)
}

// store returns the store that contains the authority's files. If it is a state directory, that must exist
// already.
func (a *authorityFlags) store() (ca.Store, error) {
	if a.secret == "" {
		if _, err := os.Stat(a.state); err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--state: %w", err), Hint: "it must be the directory of outriderd serve --state; with --ca-secret NAME it is a Secret"}
		}
		return ca.Directory(filepath.Join(a.state, "ca")), nil
	}
	a.kubernetes.mode = "on"
	cluster, err := a.kubernetes.connect(slog.New(slog.DiscardHandler), true)
	if err != nil {
		return nil, err
	}
	return cluster.AuthoritySecret(a.namespace, a.secret), nil
}
