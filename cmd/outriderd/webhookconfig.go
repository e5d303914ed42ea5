package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/mesh"
)

func newWebhookConfig() *cobra.Command {
	var where authorityFlags
	var domain, service string
	o := webhook.ConfigurationOptions{}
	cmd := &cobra.Command{
		Use:   "webhook-config",
		Short: "print the configuration that makes the API server call outriderd for new pods",
		Long: `Prints a MutatingWebhookConfiguration with the certificates of the state directory, or of the
Secret that --ca-secret names, for kubectl apply. Apply it again when the root certificate was replaced.

It selects pods as Istio does: namespaces with istio-injection=enabled or the revision's
istio.io/rev, pods with the label sidecar.istio.io/inject=true or the revision's, and never
pods with "false". Outrider's own labels outrider.dev/injection and outrider.dev/inject mean
the same and take precedence; with --own-labels only these two select. Selected pods are refused
while outriderd does not answer. Therefore the namespace of the control plane and kube-system
are never selected.`,
		Example: `  outriderd webhook-config --state ./state --service outrider-system/outriderd | kubectl apply -f -
  outriderd webhook-config --state ./state --url https://outriderd.example:15017 | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			if err := check("trust-domain", domain, trustDomain); err != nil {
				return err
			}
			o.Namespace = where.namespace
			if err := check("namespace", o.Namespace, dnsLabel); err != nil {
				return err
			}
			if err := place(&o.Place, service); err != nil {
				return err
			}
			c, err := webhook.Configuration(o)
			if err != nil {
				return &cli.UsageError{Err: err, Hint: cmd.Example}
			}
			if err := where.check("namespace"); err != nil {
				return err
			}
			var store ca.Store = ca.Directory(filepath.Join(where.state, "ca")) // created if it does not exist
			if where.secret != "" {
				if store, err = where.store(); err != nil {
					return err
				}
			}
			authority, err := ca.NewAuthority(cmd.Context(), ca.AuthorityOptions{Store: store, TrustDomain: domain})
			if err != nil {
				return err
			}
			webhook.Patch(c, authority.RootsPEM())
			text, err := yaml.Marshal(c)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	where.add(cmd, "namespace")
	f.StringVar(&domain, "trust-domain", mesh.DefaultTrustDomain, "trust domain of identities")
	f.StringVar(&o.Place.URL, "url", "", "URL at which the API server reaches outriderd, as https://HOST:PORT; its certificate must include HOST (--name of serve)")
	f.StringVar(&service, "service", "", "the Service of its webhook port, as NAMESPACE/NAME, in place of --url (default: outriderd in --namespace)")
	f.StringVar(&o.Revision, "revision", "", "revision that pods and namespaces request (default default)")
	f.StringVar(&o.Name, "name", "", "name of the configuration (default outrider-injector, and the revision)")
	f.BoolVar(&o.OwnLabels, "own-labels", false, "select by Outrider's labels only, because another injector uses Istio's")
	f.BoolVar(&o.ByDefault, "by-default", false, "also select namespaces without a label, as enableNamespacesByDefault does")
	cli.BindEnv(f, "trust-domain", "TRUST_DOMAIN")
	return cmd
}

// place parses --service, the alternative to --url, into p.
func place(p *webhook.Place, service string) error {
	if service == "" {
		return nil
	}
	if p.URL != "" {
		return &cli.UsageError{Err: errors.New("--url and --service contradict each other")}
	}
	namespace, name, ok := strings.Cut(service, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return &cli.UsageError{Err: fmt.Errorf("--service=%q: want NAMESPACE/NAME", service), Hint: "--service outrider-system/outriderd"}
	}
	p.Namespace, p.Service = namespace, name
	return nil
}
