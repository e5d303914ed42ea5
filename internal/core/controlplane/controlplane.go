// Package controlplane assembles outriderd from a source of the mesh, the resources built from it, the
// discovery service, and the certificate authority with its service. Discovery and certificates share one
// port with mutual TLS. In a cluster it also maintains the objects that pods need.
//
//	:15012  configuration, certificates and names, gRPC over mutual TLS
//	:15014  metrics and readiness; /debug only for clients on the loopback address
//	:15017  reviews of pods at admission, HTTPS; optional
//	:15010  configuration without TLS; optional
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/oklog/run"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/mesh"
)

// DefaultProxiesPerAddress is the default of [Options.ProxiesPerAddress].
const DefaultProxiesPerAddress = conns.DefaultProxies

// DefaultConnectionAge is the default of [Options.ConnectionAge], which is Istio's
// keepaliveMaxServerConnectionAge. With it, 10,000 proxies open 6 connections per second.
const DefaultConnectionAge = 30 * time.Minute

// Options of a control plane. The zero value of a field means its default, unless it
// is required.
type Options struct {
	Folder string // folder with manifests, from which the mesh is built; default: Cluster
	// Cluster is the cluster that the control plane serves, see cluster.go; default: none, and Folder is
	// required.
	Cluster *kube.Cluster
	// State is the directory for the authority and the used tokens. It is required without CASecret and
	// ServingSecret.
	State string

	// CASecret is the Secret in Namespace of Cluster that contains the authority. All replicas share it, and
	// used tokens are then recorded in the cluster too. If the Secret does not exist, it is created if its
	// name is [contract.AuthoritySecret]; otherwise outriderd waits for it. Default: the authority is in
	// State.
	CASecret string
	// ServingSecret and ServingFiles are for a mesh in which another authority signs the proxies'
	// certificates. ServingSecret is the Secret in Namespace of Cluster that contains the control plane's own
	// certificate (tls.crt, tls.key, ca.crt); outriderd waits until it exists. ServingFiles is a folder with
	// the same files. Default: this process is the authority.
	ServingSecret, ServingFiles string
	// RootsFrom is a ConfigMap in Namespace with additional roots, for use with ServingSecret. An example is
	// istio-ca-root-cert, which istio-csr writes. Default: none.
	RootsFrom string
	// TrustBundle is one of [TrustBundleModes]. It determines whether the roots are also published as a
	// ClusterTrustBundle, which injected pods mount instead of their namespace's ConfigMap; default off.
	TrustBundle string
	// RootSpread is the time for which the next root is published before it signs certificates; default
	// [ca.DefaultRootSpread].
	RootSpread time.Duration

	// Nodes is set if nodes of Cluster run outrider-node. The control plane then watches the nodes. While
	// outrider-node is ready on all nodes, it sets up the capture for injected pods without the annotation
	// [contract.Init].
	Nodes bool

	Mesh      mesh.Config
	SkipKinds []string // kinds of Cluster that are not read, from [kube.OptionalKinds]; default: none
	Version   string   // version of the program, for /version
	Replica   string   // name of this replica, for the status page; default: none
	Namespace string   // namespace of the control plane itself; default outrider-system
	Names     []string // DNS names for its certificate, in addition to [ca.ServingNames]

	Listen    string // default ":15012"
	HTTP      string // default ":15014"
	Plaintext string // default: no such port
	Webhook   string // default: no such port; Istio's is :15017
	// ProxiesPerAddress is the maximum number of proxies of one identity that may connect from one address;
	// default [DefaultProxiesPerAddress].
	ProxiesPerAddress int
	// FirstUse is the time for which a proxy waits for a resource that it uses for the first time; default
	// [contract.DefaultFirstUse].
	FirstUse time.Duration

	// ConnectionAge is the age of its connection at which a proxy has to reconnect, plus or minus a tenth at
	// random; default [DefaultConnectionAge].
	ConnectionAge time.Duration

	// Diagnoser runs on that replica in Cluster which holds a Lease in Namespace; default: no diagnoses.
	Diagnoser Diagnoser

	Injection Injection // injection by the webhook
	// WebhookConfiguration is the name of the MutatingWebhookConfiguration in Cluster whose CA bundle is kept
	// current; default: the configuration of the injection's revision; "off": none.
	WebhookConfiguration string

	Life    time.Duration // lifetime of a certificate if the request contains none; default 24h
	MaxLife time.Duration // longest lifetime of a certificate; default 24h, or Life if that is longer
	Log     *slog.Logger  // default: none

	// Ready is called with the listening addresses once the control plane has started. It may be nil.
	Ready func(Addresses)
	// Stopping is called when the control plane is to end, and everything still serves until it returns or its
	// context ends. In a cluster, requests arrive until every node has learnt that this replica ends. It may be nil.
	Stopping func(context.Context)
}

// A Diagnoser finds pods that fail or start slowly, and reports the causes.
type Diagnoser interface {
	// Run watches and diagnoses pods until ctx ends. After it has returned, it may be called again.
	Run(ctx context.Context)
	// Counts returns the number of diagnoses by cause. Causes that never occurred have 0.
	Counts() map[string]uint64
}

// external reports whether an authority other than outriderd signs the proxies' certificates.
func (o Options) external() bool { return o.ServingSecret != "" || o.ServingFiles != "" }

// inSecret reports whether the authority's files are in a Secret, which may not exist yet.
func (o Options) inSecret() bool { return o.CASecret != "" || o.ServingSecret != "" }

// An OptionError is the reason why an option cannot be used.
type OptionError struct {
	Option string // field of [Options], for example "Injection.Values"
	Err    error
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }

func (e *OptionError) Unwrap() error { return e.Err }

// Addresses are the addresses on which a control plane listens.
type Addresses struct{ Discovery, HTTP, Plaintext, Webhook string }

func (o Options) withDefaults() Options {
	fill := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	fill(&o.Namespace, mesh.DefaultRoot)
	fill(&o.Listen, fmt.Sprintf(":%d", contract.SecureDiscoveryPort))
	fill(&o.HTTP, fmt.Sprintf(":%d", contract.MonitoringPort))
	fill(&o.Mesh.TrustDomain, mesh.DefaultTrustDomain)
	fill(&o.Mesh.Domain, mesh.DefaultDomain)
	fill(&o.Mesh.RootNamespace, o.Namespace)
	o.FirstUse = cmp.Or(o.FirstUse, contract.DefaultFirstUse)
	o.ConnectionAge = cmp.Or(o.ConnectionAge, DefaultConnectionAge)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run serves until end is done and o.Stopping has returned. Before it binds a port, it opens and checks everything
// except an authority in a Secret. Until that authority can be read, /ready reports the reason.
func Run(end context.Context, o Options) error {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(context.WithoutCancel(end))
	defer cancel()
	serving := context.AfterFunc(end, cancel) // until it serves, it ends at once
	p, err := open(ctx, o)
	if err != nil {
		return err
	}
	listeners, addresses, err := listen(o)
	if err != nil {
		return err
	}
	web := p.startWeb(listeners.web)
	if o.inSecret() {
		if err := p.openAuthority(ctx); err != nil {
			web.close()
			listeners.close()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}

	var g run.Group
	serving()
	g.Add(func() error { o.untilStopped(end, ctx); return nil }, func(error) { cancel() })
	p.admission.serve(ctx, end, &g, listeners.hook)
	p.serveCluster(ctx, &g)
	// Streams end only after the webhook and the controllers: a proxy then connects to another replica while
	// this one still answers.
	p.bind(listeners)
	p.serve(ctx, &g, p.secure)
	if listeners.plain != nil {
		o.Log.Warn("configuration is served without TLS: whoever reaches this port reads all of it", "address", addresses.Plaintext)
		p.serve(ctx, &g, p.plain)
	}
	g.Add(func() error { return <-web.ended }, func(error) { web.close() })
	g.Add(func() error { return p.authority.Run(ctx) }, func(error) { cancel() })
	g.Add(func() error { p.report(ctx); return nil }, func(error) { cancel() })
	o.Log.Info("serving", "discovery", addresses.Discovery, "http", addresses.HTTP, "webhook", addresses.Webhook)
	if o.Ready != nil {
		o.Ready(addresses)
	}
	stopped := func(err error) bool {
		return err == nil || errors.Is(err, context.Canceled) || errors.Is(err, http.ErrServerClosed)
	}
	if err := g.Run(); !stopped(err) {
		return err
	}
	return nil
}

// untilStopped returns when the control plane is to stop serving: after end and o.Stopping, or with ctx.
func (o Options) untilStopped(end, ctx context.Context) {
	select {
	case <-end.Done():
	case <-ctx.Done():
	}
	if o.Stopping != nil && ctx.Err() == nil {
		o.Log.Info("ends, and serves until others know of it")
		o.Stopping(ctx)
	}
}

type listeners struct{ main, web, plain, hook net.Listener }

func (l listeners) close() {
	for _, one := range []net.Listener{l.main, l.web, l.plain, l.hook} {
		if one != nil {
			one.Close()
		}
	}
}

// listen binds all ports. After an error it binds none.
func listen(o Options) (out listeners, a Addresses, err error) {
	bind := func(address string, to *net.Listener, actual *string) {
		if err != nil || address == "" {
			return
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			*to, *actual = l, l.Addr().String()
		}
	}
	bind(o.Listen, &out.main, &a.Discovery)
	bind(o.HTTP, &out.web, &a.HTTP)
	bind(o.Plaintext, &out.plain, &a.Plaintext)
	bind(o.Webhook, &out.hook, &a.Webhook)
	if err != nil {
		out.close()
	}
	return out, a, err
}
