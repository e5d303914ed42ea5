package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/pod/lookup"
	"outrider.dev/internal/doctor/diagnoser"
)

const defaultState = "/var/lib/outrider"

// stopDelay is the time for which a replica in a cluster still serves after SIGTERM. Kube-proxy on every node needs about a
// second until it sends no connection to the replica any more, and longer in large clusters. Together with the ends of
// reviews and streams, it fits into the 30 s that Kubernetes gives a pod.
const stopDelay = 5 * time.Second

func newServe() *cobra.Command {
	var source, level, ownLabels, serving string
	var kubernetes clusterFlags
	var images lookup.Flags
	var networks []string
	var diagnosis diagnosis
	o := controlplane.Options{}
	cmd := &cobra.Command{
		Use:     "serve --source files:DIR | kubernetes",
		Aliases: []string{"discovery"}, // the command that starts Istio's control plane
		Short:   "serve configuration and certificates to proxies",
		Long: `Serves configuration (xDS) and certificates to proxies over mutual TLS.

The mesh comes from a cluster or from a folder of Kubernetes manifests: Service,
EndpointSlice, Pod, Namespace, HTTPRoute, GRPCRoute, ReferenceGrant, PeerAuthentication,
AuthorizationPolicy, BackendPolicy, XBackendTrafficPolicy, and Host for machines outside of
Kubernetes. Both are watched: a change reaches the proxies that use the changed object. A
file or object with a mistake is reported, and its former content stays in use.

Pods are injected at admission, by a webhook on a separate port; outriderd webhook-config
prints the configuration that makes the API server call it.

With a cluster, tokens are checked by the API server, labels of namespaces are read there,
and two things are kept current: the ConfigMap outrider-ca-root-cert in every namespace, and
the certificates in the webhook's configuration. In a pod with a service account the cluster
is used by default.

If the state directory has no root certificate, one is created there. Proxies need the file
ca/root-cert.pem. With --ca-secret the authority is in a Secret instead, nothing is kept in the
state directory, and several replicas may run. The root that was made is rotated
automatically when a fifth of its lifetime is left, and by outriderd rotate.

With --serving-certificate another authority signs the certificates of proxies, such as
cert-manager's istio-csr, and outriderd signs none.`,
		Example: `  outriderd serve --source files:./mesh --state ./state
  outriderd serve --source files:./mesh --state ./state --name outriderd.example
  outriderd serve --source kubernetes --kubeconfig ~/.kube/config --state ./state`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			log, err := logger(cmd, level)
			if err != nil {
				return err
			}
			o.Log, o.Version = log, cli.Version()
			o.Replica, _ = os.Hostname() // in a pod, the pod's name
			limitMemory(log, memlimit.FromCgroup)
			if o.Webhook == "off" {
				o.Webhook = ""
			}
			if err := cmp.Or(checkServe(o), diagnosis.check()); err != nil {
				return err
			}
			if err := servingFrom(serving, &o); err != nil {
				return err
			}
			if o.Folder, err = folder(source); err != nil {
				return err
			}
			if o.Cluster, err = kubernetes.connect(log, o.Folder == ""); err != nil {
				return err
			}
			if o.Diagnoser, err = diagnosis.diagnoser(o); err != nil {
				return err
			}
			if o.Mesh.Networks, err = prefixes(networks); err != nil {
				return err
			}
			if o.Injection.OwnLabels, err = controlplane.ParseOwnLabels(ownLabels, o.Injection.Revision); err != nil {
				return &cli.UsageError{Err: fmt.Errorf("--own-labels=%w", err)}
			}
			if o.Injection.Images, err = images.Resolver(http.ProxyFromEnvironment); err != nil {
				return &cli.UsageError{Err: err}
			}
			if o.Cluster != nil && o.Folder == "" {
				o.Stopping = func(ctx context.Context) {
					select {
					case <-ctx.Done():
					case <-time.After(stopDelay):
					}
				}
			}
			return byFlag(controlplane.Run(cmd.Context(), o))
		},
	}
	f := cmd.Flags()
	f.StringVar(&source, "source", "", "where the mesh comes from: files:DIR, or kubernetes")
	f.StringVar(&kubernetes.mode, "kubernetes", "auto", "whether a cluster is used: on, off, or auto, which is on in a pod with a service account, and with --kubeconfig")
	f.StringVar(&kubernetes.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the pod's service account, else kubectl's file)")
	f.StringVar(&o.WebhookConfiguration, "webhook-configuration", "", "name of the MutatingWebhookConfiguration in which certificates are kept current; off: none (default outrider-injector, with the revision)")
	f.StringVar(&o.State, "state", defaultState, "directory of the certificate authority and of used tokens")
	f.StringVar(&o.CASecret, "ca-secret", "", "Secret in --namespace with the certificate authority, which all replicas share; outrider-ca is made if there is none, any other is only read, and waited for (default: the authority is in --state)")
	f.StringVar(&serving, "serving-certificate", "", "where another authority signs the proxies' certificates (global.caAddress): the control plane's own certificate, tls.crt, tls.key and ca.crt, in secret:NAME, a Secret in --namespace, or in files:DIR; then no certificate is signed here")
	f.StringVar(&o.RootsFrom, "ca-roots", "", "with --serving-certificate=secret:NAME, ConfigMap in --namespace with more roots to trust, as istio-csr writes istio-ca-root-cert")
	f.StringVar(&o.TrustBundle, "trust-bundle", controlplane.TrustBundleAuto, "with a cluster, whether the roots are in a ClusterTrustBundle too, which injected pods mount: auto, from Kubernetes 1.37 on; on, also before, where ClusterTrustBundleProjection is switched on in the API server and all kubelets; off")
	f.DurationVar(&o.RootSpread, "root-spread", ca.DefaultRootSpread, "in a rotation of the root, how long the next root is published before it signs")
	f.DurationVar(&o.FirstUse, "first-use-timeout", contract.DefaultFirstUse, "how long the control plane may be unavailable before a proxy's agent responds to the first use of a service; a proxy without an agent waits that long for its configuration before it answers 503 or resets")
	f.StringVar(&o.Listen, "listen", port(contract.SecureDiscoveryPort), "address for configuration and certificates, with mutual TLS")
	f.StringVar(&o.HTTP, "http", port(contract.MonitoringPort), "address for metrics, readiness and, on this machine only, /debug")
	f.StringVar(&o.Plaintext, "plaintext", "", "address for configuration without TLS, for example 127.0.0.1:15010; every client that reaches it can read all of it")
	f.IntVar(&o.ProxiesPerAddress, "proxies-per-address", controlplane.DefaultProxiesPerAddress, "how many proxies with one service account may connect from one address; raise it where they share an address (NAT)")
	f.StringVar(&o.Webhook, "webhook", port(contract.WebhookPort), "address for reviews of pods at admission, HTTPS; off: no webhook")
	f.StringVar(&o.Injection.ClientCA, "webhook-client-ca", "", "file with the roots of the API server's client certificates (PEM): other clients of the webhook are refused in the TLS handshake; watched (default: every client is answered)")
	f.StringSliceVar(&o.Injection.ClientNames, "webhook-client-name", nil, "common name that a client certificate may have, with --webhook-client-ca; may be repeated (default: any)")
	f.StringVar(&o.Injection.Values, "inject-values", "", "file with values for injection, those of Istio's charts; watched")
	f.StringVar(&o.Injection.MeshConfig, "mesh-config", "", "file with the mesh configuration for injection, in Istio's format; watched")
	f.StringVar(&o.Injection.Revision, "revision", "", "revision that pods and namespaces request (default: that of the values, else default)")
	f.StringVar(&o.Injection.ControlPlane, "control-plane", "", "address of the control plane for injected pods, as HOST:PORT (default outriderd.NAMESPACE.svc:15012)")
	images.Add(f, 3*time.Second, nil)
	f.StringSliceVar(&o.Names, "name", nil, "more DNS names and IP addresses of this control plane, for its certificate")
	f.StringVar(&ownLabels, "own-labels", "auto", "whether only outrider.dev/injection and outrider.dev/inject request injection, and Istio's labels do not: on, off, or auto, which is on while Istio's labels select pods for another injector in the cluster")
	f.StringVar(&o.Namespace, "namespace", mesh.DefaultRoot, "namespace that outriderd runs in; policies there hold for the whole mesh")
	f.StringVar(&o.Mesh.TrustDomain, "trust-domain", mesh.DefaultTrustDomain, "trust domain of identities")
	f.StringVar(&o.Mesh.Domain, "domain", mesh.DefaultDomain, "DNS domain of services")
	f.StringSliceVar(&o.SkipKinds, "skip-kind", nil, "kind that is not read from the cluster and needs no permission: httproutes (and with these grpcroutes and referencegrants), peerauthentications, authorizationpolicies, hosts, backendpolicies (and with these xbackendtrafficpolicies), or ignored, the kinds of other meshes that are only reported; may be repeated")
	f.StringSliceVar(&networks, "network", nil, "network of services and pods; may be repeated (default: the private networks)")
	f.BoolVar(&o.Nodes, "nodes", false, "with a cluster, watch its nodes: where all Linux nodes run outrider-node, injected pods without annotation outrider.dev/init get no init container")
	f.BoolVar(&diagnosis.wanted, "diagnose", false, "with a cluster, diagnose injected pods that restart or are slow to get ready: an Event on the pod says the cause, and outriderd_diagnoses_total counts it; one replica does it")
	f.DurationVar(&diagnosis.slow, "slow-start", diagnoser.DefaultSlow, "with --diagnose, how long a pod may take to get ready once it is scheduled")
	f.DurationVar(&o.Life, "certificate-life", 24*time.Hour, "lifetime of certificates, unless the agent requests one (SECRET_TTL), and of the control plane's own")
	f.DurationVar(&o.MaxLife, "max-certificate-life", 0, "the longest lifetime that an agent may request (default 24h, or --certificate-life if that is longer)")
	f.DurationVar(&o.ConnectionAge, "max-connection-age", controlplane.DefaultConnectionAge, "how long a proxy may stay connected before it must reconnect, plus or minus a tenth")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cli.BindEnv(f, "ca-secret", caSecretEnv)
	cli.BindEnv(f, "first-use-timeout", "OUTRIDER_FIRST_USE_TIMEOUT")
	cli.BindEnv(f, "namespace", "POD_NAMESPACE")
	cli.BindEnv(f, "trust-domain", "TRUST_DOMAIN")
	return cmd
}

func port(n int) string { return fmt.Sprintf(":%d", n) }

// shortestFirstUse is the minimum of --first-use-timeout. It suffices for a nearby control plane on a busy
// machine.
const shortestFirstUse = 100 * time.Millisecond

// folder returns the folder that the value of --source names; empty if the source is a cluster.
func folder(source string) (string, error) {
	if source == "kubernetes" {
		return "", nil
	}
	dir, ok := strings.CutPrefix(source, "files:")
	if !ok || dir == "" {
		return "", &cli.UsageError{Err: fmt.Errorf("--source=%q: want files:DIR, a folder of manifests, or kubernetes", source),
			Hint: "outriderd serve --source files:./mesh"}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", &cli.UsageError{Err: fmt.Errorf("--source: %w", err), Hint: "make the folder; it may be empty"}
	}
	if !info.IsDir() {
		return "", &cli.UsageError{Err: fmt.Errorf("--source: %s is not a folder", dir)}
	}
	return dir, nil
}

// servingFrom parses --serving-certificate, the location of the control plane's own certificate, into o.
func servingFrom(text string, o *controlplane.Options) error {
	if text == "" {
		return nil
	}
	from, name, _ := strings.Cut(text, ":")
	switch {
	case o.CASecret != "":
		return &cli.UsageError{Err: errors.New("--serving-certificate with --ca-secret: either another authority signs, or this one")}
	case from == "secret" && isSecretName(name):
		o.ServingSecret = name
	case from == "files" && name != "":
		o.ServingFiles = name
	default:
		return &cli.UsageError{Err: fmt.Errorf("--serving-certificate=%q: want secret:NAME, a Secret, or files:DIR, a folder", text),
			Hint: "--serving-certificate=secret:" + contract.ServingSecret}
	}
	return nil
}

func names(all []string) error {
	for _, name := range all {
		if err := ca.CheckName(name); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--name=%w", err), Hint: "--name outriderd.example --name 192.0.2.7"}
		}
	}
	return nil
}

func prefixes(texts []string) (out []netip.Prefix, err error) {
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--network=%q: want a network, for example 10.96.0.0/12", text)}
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func logger(cmd *cobra.Command, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--log-level=%q: one of debug, info, warn, error", level)}
	}
	return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: l})), nil
}
