package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// A plane is a control plane that is open: its parts and its options.
type plane struct {
	o         Options
	began     time.Time
	mesh      source
	cluster   *cluster // nil: there is no cluster
	namespace namespaces
	authority *ca.Authority
	opened    chan struct{}          // closed when the authority, the parts that need it and the listeners are ready
	awaited   atomic.Pointer[string] // reason why the authority is not open yet

	byIdentity, byClaim *xds.Server // byClaim is nil without a plaintext port
	secure, plain       port
	tls                 *tls.Config // TLS configuration of [plane.secure]

	trimmer   *trimmer
	admission *admission
}

// views returns the source of the resources to which proxies can subscribe.
func (p *plane) views() *resource.Source {
	s := resource.New(p.mesh)
	s.FirstUseTimeout = p.o.FirstUse
	return s
}

// open creates the parts of the control plane; each may fail. An authority in a Secret is opened later, by
// openAuthority, because the Secret may not exist yet.
func open(ctx context.Context, o Options) (_ *plane, err error) {
	if err := prepareState(o); err != nil {
		return nil, err
	}
	if o.Mesh, err = o.Injection.ofProxies(o.Mesh); err != nil {
		return nil, err
	}
	p := &plane{o: o, began: time.Now(), cluster: openCluster(ctx, o), trimmer: newTrimmer(), opened: make(chan struct{})}
	p.admission = &admission{o: o, cluster: p.cluster}
	p.awaited.Store(new("not read yet"))
	if p.mesh, p.namespace, err = openSource(ctx, o, p.cluster); err != nil {
		return nil, err
	}
	if !o.inSecret() {
		return p, p.openAuthority(ctx)
	}
	if o.Webhook != "" { // reports mistakes in the files before the wait for the Secret
		if _, err := p.admission.injection(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// prepareState checks the options for the authority, and creates the state directory if it is needed.
func prepareState(o Options) error {
	switch {
	case o.CASecret != "" && o.Cluster == nil:
		return &OptionError{"CASecret", errors.New("a Secret needs a cluster")}
	case o.ServingSecret != "" && o.Cluster == nil:
		return &OptionError{"ServingSecret", errors.New("a Secret needs a cluster")}
	case o.CASecret != "" && o.external():
		return &OptionError{"ServingSecret", errors.New("another authority signs, so that there is no Secret with ours")}
	case o.RootsFrom != "" && o.ServingSecret == "":
		return &OptionError{"RootsFrom", errors.New("the roots are read with the Secret of the control plane's certificate")}
	case o.Diagnoser != nil && o.Cluster == nil:
		return &OptionError{"Diagnoser", errors.New("pods are diagnosed in a cluster")}
	case o.inSecret():
		return nil
	case o.State == "":
		return &OptionError{"State", errors.New("want a directory")}
	}
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return &OptionError{"State", err}
	}
	return nil
}

func (p *plane) isOpen() bool {
	select {
	case <-p.opened:
		return true
	default:
		return false
	}
}

// openAuthority opens the authority, and the parts that need it.
func (p *plane) openAuthority(ctx context.Context) (err error) {
	o := p.o
	options := ca.AuthorityOptions{
		Store: ca.Directory(filepath.Join(o.State, "ca")), TrustDomain: o.Mesh.TrustDomain, Life: o.Life, MaxLife: o.MaxLife,
		RootSpread: o.RootSpread, Hosts: hosts{p.mesh}, Log: o.Log,
	}
	switch {
	case o.ServingSecret != "":
		options.Store = o.Cluster.ServingSecret(o.Namespace, o.ServingSecret, o.RootsFrom)
	case o.ServingFiles != "":
		options.Store, options.Record = ca.Directory(o.ServingFiles), ca.Directory(filepath.Join(o.State, "seen-roots"))
	case o.CASecret != "":
		options.Store, options.StoreTokenKey = o.Cluster.AuthoritySecret(o.Namespace, o.CASecret), true
	}
	if o.inSecret() {
		if o.CASecret != contract.AuthoritySecret {
			options.Record = o.Cluster.AuthoritySecret(o.Namespace, contract.SeenRootsSecret)
		}
		options.Waiting = func(err error) { p.awaited.Store(new(err.Error())) }
	}
	if o.external() {
		options.ServesOnly = o.servedNames()
	}
	if p.authority, err = ca.NewAuthority(ctx, options); err != nil {
		return err
	}
	if err := p.openServing(); err != nil {
		return err
	}
	if p.cluster != nil {
		p.cluster.openConfigurations(ctx, o.watchesOtherInjectors(), p.admission.webhookConfiguration())
		p.cluster.openTrustBundle(o.TrustBundle, p.authority)
	}
	return nil
}

// servedNames returns the DNS names by which proxies and the API server know this control plane.
func (o Options) servedNames() []string {
	out := []string{contract.ControlPlaneName}
	if o.Webhook != "" {
		if host, _, err := net.SplitHostPort(o.Injection.address(o.Namespace)); err == nil {
			out = append(out, host)
		}
	}
	return append(out, o.Names...)
}

// openServing creates the discovery servers and the server for reviews.
func (p *plane) openServing() error {
	o := p.o
	options := xds.Options{
		Source: p.views(), Authenticate: p.authenticate, Prewarm: xds.NewPrewarmCache(), Log: o.Log,
		Client: conns.ClientOf, Streams: o.ProxiesPerAddress, Settled: p.settled,
	}
	p.byIdentity = xds.New(options)
	if o.Plaintext != "" {
		options.Authenticate = xds.ByClaim
		p.byClaim = xds.New(options)
	}
	return p.openSecure()
}

// authenticate returns a proxy's identity from the token of its stream, or from its certificate if it sent no
// token.
func (p *plane) authenticate(ctx context.Context, _ *core.Node) (xds.Proxy, error) {
	id, ok := tokenOf(ctx)
	var err error
	if !ok {
		id, err = p.authority.AuthenticatePeer(ctx)
	}
	return xds.Proxy{Namespace: id.Namespace, ServiceAccount: id.ServiceAccount}, err
}

// settled must be called when a proxy has received its first configuration.
func (p *plane) settled(ctx context.Context) {
	conns.Settled(ctx)
	p.trimmer.connected()
}

// openSecure creates the server for configuration and certificates, on the port with mutual TLS. It also
// creates the server for reviews, which uses the same certificate.
func (p *plane) openSecure() error {
	o := p.o
	id := ca.Identity{TrustDomain: o.Mesh.TrustDomain, Namespace: o.Namespace, ServiceAccount: "outriderd"}
	serving, err := p.authority.NewServing(id, append(ca.ServingNames(o.Namespace, o.Mesh.Domain), o.Names...), 0)
	if err != nil {
		return err
	}
	tokens, used, err := p.tokens()
	if err != nil {
		return err
	}
	if err := p.admission.open(serving, p.namespace, p.current); err != nil {
		return err
	}
	p.tls = serving.TLS()
	reviewers := p.reviewers()
	p.secure = p.securePort(&ca.Service{
		Authority: p.authority,
		Authenticators: append([]ca.Authenticator{
			tokens,
			ca.HostTokens{TrustDomain: o.Mesh.TrustDomain, Hosts: hosts{p.mesh}, Used: used},
			ca.MutualTLS{Authority: p.authority, MayRenew: p.mayRenew},
		}, reviewers...),
		Log: o.Log,
	}, &ca.Service{Authenticators: append([]ca.Authenticator{tokens}, reviewers...), Log: o.Log})
	if p.byClaim != nil {
		p.plain = p.plainPort()
	}
	return nil
}

// bind assigns the listeners to the servers, and marks the control plane as open.
func (p *plane) bind(l listeners) {
	p.secure.listener = p.listenOn(l.main, p.tls)
	if l.plain != nil {
		p.plain.listener = p.listenOn(l.plain, nil)
	}
	close(p.opened)
}

// tokens returns the issuer of this control plane's tokens, and the record of used one-time tokens, which is
// stored beside the authority.
func (p *plane) tokens() (*ca.Tokens, ca.UsedTokens, error) {
	if p.o.inSecret() {
		return p.authority.Tokens(), p.o.Cluster.UsedTokens(p.o.Namespace), nil
	}
	tokens, err := ca.NewTokens(p.o.State, p.o.Mesh.TrustDomain)
	if err != nil {
		return nil, nil, err
	}
	used, err := ca.NewUsed(filepath.Join(p.o.State, "used-tokens"))
	return tokens, used, err
}

func (p *plane) current() *mesh.Mesh {
	m, _ := p.mesh.Current()
	return m
}

// discovery returns the discovery servers: one or two.
func (p *plane) discovery() []*xds.Server {
	out := []*xds.Server{p.byIdentity}
	if p.byClaim != nil {
		out = append(out, p.byClaim)
	}
	return out
}

// report logs the problems of the source, now and after each change.
func (p *plane) report(ctx context.Context) {
	latest.Wait(ctx, p.mesh.Synced())
	for {
		problems, changed := p.mesh.Problems()
		for _, problem := range problems {
			level := slog.LevelError
			if strings.HasPrefix(problem, contract.WarningPrefix) {
				level = slog.LevelWarn
			}
			p.o.Log.Log(ctx, level, "object is not used as it is", "problem", problem)
		}
		current, _ := p.mesh.Current()
		services, workloads := current.Len()
		p.o.Log.Info("mesh", "services", services, "workloads", workloads, "problems", len(problems))
		if !latest.Wait(ctx, changed) {
			return
		}
	}
}
