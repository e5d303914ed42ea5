// Package controlplane puts the parts of outriderd together: a source of the mesh, the
// resources made of it, the discovery service, and the authority with its service, behind
// one port with mutual TLS. With a cluster it also keeps objects there that pods need.
//
//	:15012  configuration, certificates and names, gRPC over mutual TLS
//	:15014  metrics and readiness; /debug for the loopback address alone
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

// DefaultProxiesPerAddress is how many proxies of one identity may connect from one address.
const DefaultProxiesPerAddress = conns.DefaultProxies

// DefaultConnectionAge is Istio's (keepaliveMaxServerConnectionAge). 10,000 proxies then make
// 6 connections a second.
const DefaultConnectionAge = 30 * time.Minute

// Options of a control plane. The zero value of a field means its default, unless it
// is required.
type Options struct {
	Folder  string        // of manifests: the source of the mesh; default: Cluster
	Cluster *kube.Cluster // see cluster.go; default: none, and Folder is required
	State   string        // directory of the authority and of used tokens; required without CASecret and ServingSecret

	// CASecret is the Secret of Cluster with the authority, in Namespace, which all replicas share;
	// used tokens are then there too. [contract.AuthoritySecret] is made if there is none; others
	// are waited for. Default: the authority is in State.
	CASecret string
	// ServingSecret is set where another authority signs the proxies' certificates: the Secret of
	// Cluster in Namespace with the control plane's own one (tls.crt, tls.key, ca.crt), which is
	// waited for. ServingFiles is a folder with the same. Default: the authority is this process.
	ServingSecret, ServingFiles string
	// RootsFrom is a ConfigMap in Namespace with more roots, as istio-csr writes
	// istio-ca-root-cert, with ServingSecret. Default: none.
	RootsFrom string
	// TrustBundle is whether the roots are in a ClusterTrustBundle too, which injected pods mount in
	// place of their namespace's ConfigMap; default off.
	TrustBundle string
	// RootSpread is how long the next root is published before it signs; default
	// [ca.DefaultRootSpread].
	RootSpread time.Duration

	// Nodes says that nodes of Cluster run outrider-node: they are watched, and where all do,
	// injected pods without annotation [contract.Init] are theirs.
	Nodes bool

	Mesh      mesh.Config
	SkipKinds []string // of Cluster that are not read, of [kube.OptionalKinds]; default: none
	Version   string   // of the program, for /version
	Replica   string   // name of this one, for the status page; default: none
	Namespace string   // of the control plane itself; default outrider-system
	Names     []string // more DNS names for its certificate, besides those of a cluster

	Listen    string // default ":15012"
	HTTP      string // default ":15014"
	Plaintext string // default: no such port
	Webhook   string // default: no such port; Istio's is :15017
	// ProxiesPerAddress is how many proxies of one identity may connect from one address;
	// default [DefaultProxiesPerAddress].
	ProxiesPerAddress int
	// FirstUse is how long a proxy waits for a resource that it uses for the first time;
	// default [contract.DefaultFirstUse].
	FirstUse time.Duration

	// ConnectionAge is after which time, more or less a tenth, a proxy connects again; default
	// [DefaultConnectionAge].
	ConnectionAge time.Duration

	// Diagnoser is run by one replica of Cluster, the holder of a Lease in Namespace; default: none.
	Diagnoser Diagnoser

	Injection Injection // at the webhook
	// WebhookConfiguration of Cluster whose certificates are kept current; default: that
	// of the injection's revision; "off": none.
	WebhookConfiguration string

	Life    time.Duration // of a certificate whose request names no lifetime; default 24h
	MaxLife time.Duration // the longest that a request may name; default 24h, or Life if that is longer
	Log     *slog.Logger  // default: none

	// Ready is called with the addresses that are served, once they are.
	Ready func(Addresses)
}

// A Diagnoser looks for pods that fail or start slowly, and says why.
type Diagnoser interface {
	// Run watches and diagnoses until ctx ends. It may be called again, but not twice at a time.
	Run(ctx context.Context)
	// Counts returns the number of diagnoses of each cause, also of those that never occurred.
	Counts() map[string]uint64
}

// external reports whether another authority signs the proxies' certificates.
func (o Options) external() bool { return o.ServingSecret != "" || o.ServingFiles != "" }

// inSecret reports whether the authority's files are in a Secret, which may have to be waited for.
func (o Options) inSecret() bool { return o.CASecret != "" || o.ServingSecret != "" }

// An OptionError is an option that cannot be used.
type OptionError struct {
	Option string // of [Options], for example "Injection.Values"
	Err    error
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Err.Error() }

func (e *OptionError) Unwrap() error { return e.Err }

// Addresses are where a control plane listens.
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

// Run serves until ctx ends. Everything is opened and checked before a port is bound, but the
// authority in a Secret: while that is waited for, /ready has the reason.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	g.Add(func() error { <-ctx.Done(); return nil }, func(error) { cancel() })
	p.serveWebhook(ctx, &g, listeners.hook)
	p.serveCluster(ctx, &g)
	// Then streams end: a proxy connects to another replica while this one still answers.
	p.secure.listener = p.listenOn(listeners.main, p.tls)
	p.serve(ctx, &g, p.secure)
	if listeners.plain != nil {
		o.Log.Warn("configuration is served without TLS: whoever reaches this port reads all of it", "address", addresses.Plaintext)
		p.plain.listener = p.listenOn(listeners.plain, nil)
		p.serve(ctx, &g, p.plain)
	}
	close(p.opened)
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

// wait returns false if ctx ended before done was closed.
func wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
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

// listen binds every port, or none.
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
