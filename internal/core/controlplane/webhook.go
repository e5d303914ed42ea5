package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/run"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/lookup"
)

// Injection configures the injection of pods at admission.
type Injection struct {
	Values     string    // file with values for Istio's charts; default: none
	MeshConfig string    // file with the mesh configuration, in Istio's format; default: none
	Revision   string    // default: the revision in Values, else "default"
	OwnLabels  OwnLabels // default auto
	// ControlPlane is the address that injected pods use; default: the Service outriderd in the control
	// plane's namespace.
	ControlPlane string

	// Images looks up the commands of containers whose pod spec has none; default: no look-up.
	Images *lookup.Resolver

	// ClientCA is a file with the roots that sign the API server's client certificates; without it the
	// webhook answers every client. ClientNames lists the accepted common names; default: all.
	ClientCA    string
	ClientNames []string
}

// address returns the address of the control plane for injected pods.
func (i Injection) address(namespace string) string {
	return cmp.Or(i.ControlPlane, "outriderd."+namespace+".svc:"+strconv.Itoa(contract.SecureDiscoveryPort))
}

// apiServers replaces [conns.Options.Proxies] for the webhook, so one client may have 64 *
// connectionsPerProxy connections, which is 256. An API server sends at most 200 reviews at a time
// (--max-mutating-requests-inflight), each on its own connection.
const apiServers = 64

// apiServerRate is the number of connections that an API server may open per second. It may open one for each
// of the 200 reviews that it sends at a time, because it keeps only 25 idle connections. A handshake takes
// 0.5 ms of a processor.
const apiServerRate = 500

// An admission is the injection of pods by the webhook, with the current settings.
type admission struct {
	o       Options
	cluster *cluster         // nil: there is no cluster
	webhook *webhook.Webhook // nil: the webhook is not served
	reviews *http.Server
	clients *webhook.Clients // clients that the webhook accepts; nil: all
	using   sync.Mutex
	used    inject.Options // options that the webhook uses now
}

// open creates the webhook and its server, if the webhook is to be served.
func (a *admission) open(serving *ca.Serving, namespaces namespaces, current func() *mesh.Mesh) error {
	if a.o.Webhook == "" {
		return nil
	}
	options, err := a.injection()
	if err != nil {
		return err
	}
	a.used = options
	o := webhook.Options{Inject: options, Namespace: a.o.Namespace, Namespaces: namespaces, Log: a.o.Log}
	o.Unenforced = func(namespace string, labels map[string]string) []string {
		var out []string
		for _, s := range current().Unenforced(&mesh.Workload{Namespace: namespace, Labels: labels}) {
			out = append(out, fmt.Sprintf("%s %s", s.Key(), s.Message()))
		}
		return out
	}
	if images := a.o.Injection.Images; images != nil {
		o.Commands = images.Commands
	}
	a.webhook = webhook.New(o)
	if file := a.o.Injection.ClientCA; file != "" {
		if a.clients, err = webhook.NewClients(file, a.o.Injection.ClientNames); err != nil {
			return &OptionError{"Injection.ClientCA", err}
		}
	}
	a.reviews = a.webhook.Server(serving.Certificate, a.clients)
	return nil
}

// settings reads the files with values and the mesh configuration. It logs values without effect.
func (i Injection) settings(log *slog.Logger) (out inject.Options, err error) {
	if i.Values != "" {
		data, err := os.ReadFile(i.Values)
		if err != nil {
			return out, &OptionError{"Injection.Values", err}
		}
		values, warnings, err := settings.ParseValues(data)
		if err != nil {
			return out, &OptionError{"Injection.Values", fmt.Errorf("%s: %w", i.Values, err)}
		}
		for _, w := range warnings {
			log.Warn("value without effect", "file", i.Values, "warning", w)
		}
		out.Values = values
	}
	if i.MeshConfig != "" {
		data, err := os.ReadFile(i.MeshConfig)
		if err != nil {
			return out, &OptionError{"Injection.MeshConfig", err}
		}
		if out.Mesh, err = settings.ParseMesh(data); err != nil {
			return out, &OptionError{"Injection.MeshConfig", fmt.Errorf("%s: %w", i.MeshConfig, err)}
		}
		for _, n := range out.Mesh.Notes {
			log.Warn("mesh configuration without effect", "file", i.MeshConfig, "note", n)
		}
	}
	return out, nil
}

// ofProxies reads the settings of running proxies into c: access logs, tracing, metrics and versions of TLS. They
// stay the same until the process ends, because a change of them would change all listeners of all proxies.
func (i Injection) ofProxies(c mesh.Config) (mesh.Config, error) {
	o, err := i.settings(slog.New(slog.DiscardHandler)) // without a log, because injection logs the warnings
	if err != nil {
		return c, err
	}
	return configOf(c, o, i)
}

func configOf(c mesh.Config, o inject.Options, files Injection) (mesh.Config, error) {
	var err error
	if c.Telemetry, err = o.Values.TelemetryIn(o.Mesh); err == nil {
		c.MinTLS, err = o.Values.MinTLSIn(o.Mesh)
	}
	switch {
	case err == nil:
		return c, nil
	case files.Values != "" && len(o.Values.MeshConfig) > 0:
		return c, &OptionError{"Injection.Values", fmt.Errorf("%s: meshConfig: %w", files.Values, err)}
	}
	return c, &OptionError{"Injection.MeshConfig", fmt.Errorf("%s: %w", files.MeshConfig, err)}
}

// injection reads the files again and returns the options for injection. It fails if the files are invalid.
func (a *admission) injection() (inject.Options, error) {
	out, err := a.o.Injection.settings(a.o.Log)
	if err != nil {
		return out, err
	}
	i := a.o.Injection
	out.Revision, out.ProbeKey, out.ControlPlane, out.TrustSigner, out.NodeServes = i.Revision, inject.RandomProbeKey, i.address(a.o.Namespace), a.trustSigner(), a.nodeServes()
	now, err := configOf(a.o.Mesh, out, i)
	if err != nil {
		return out, err
	}
	if !reflect.DeepEqual(now, a.o.Mesh) {
		a.o.Log.Warn("changes of access logs, tracing, request metrics and versions of TLS take effect when outriderd starts again", "values", i.Values, "mesh_config", i.MeshConfig)
	}
	if out.OwnLabels, err = a.listen(revisionOf(out)); err != nil {
		return out, err
	}
	if err := a.checkTrustDomain(out); err != nil {
		return out, err
	}
	if out.Mesh.TrustDomain == "" {
		out.Mesh.TrustDomain = a.o.Mesh.TrustDomain
	}
	return out, nil
}

// checkTrustDomain returns an error if the files set a trust domain other than the control plane's: each pod
// would request a certificate that this control plane does not sign.
func (a *admission) checkTrustDomain(o inject.Options) error {
	pods, source, err := o.Values.TrustDomainIn(o.Mesh)
	if err != nil || pods == "" || pods == a.o.Mesh.TrustDomain {
		return err
	}
	option, file, field := "Injection.MeshConfig", a.o.Injection.MeshConfig, "trustDomain"
	if source == settings.InValues {
		option, file, field = "Injection.Values", a.o.Injection.Values, "meshConfig.trustDomain"
	}
	return &OptionError{option, fmt.Errorf("%s: %s: %q: certificates are signed for %q; want that, or --trust-domain=%s", file, field, pods, a.o.Mesh.TrustDomain, pods)}
}

// revisionOf returns the revision that pods request; empty: the default.
func revisionOf(o inject.Options) string { return cmp.Or(o.Revision, o.Values.Revision) }

// pollFiles is the interval between reads of files that cannot be watched.
const pollFiles = 2 * time.Second

// followInjection reads the files again when they change, until ctx ends. A file with a mistake is not used.
func (a *admission) followInjection(ctx context.Context) {
	stop := wire.WatchFiles(pollFiles, func() { a.useInjection() }, a.o.Injection.Values, a.o.Injection.MeshConfig, a.o.Injection.ClientCA)
	defer stop()
	a.useInjection() // the files may have changed before they were watched
	<-ctx.Done()
}

// useInjection reads the files and the list of other injectors again, and returns the options that are used
// from now on. If the files are invalid, it returns the previous options.
func (a *admission) useInjection() inject.Options {
	a.using.Lock() // so that the options that were read last are also set last
	defer a.using.Unlock()
	options, err := a.injection()
	if err != nil {
		a.o.Log.Error("injection goes on as before", "error", err)
		options = a.used
		options.TrustSigner, options.NodeServes = a.trustSigner(), a.nodeServes()
		if own, err := a.listen(revisionOf(options)); err == nil {
			options.OwnLabels = own // the other injectors are known even if the files are invalid
		}
	}
	a.used = options
	a.webhook.Use(options)
	if a.clients != nil {
		if err := a.clients.Reload(); err != nil {
			a.o.Log.Error("the former roots of the webhook's clients stay in use", "error", err)
		}
	}
	return options
}

// serve adds the webhook to the group. The webhook must stop before the discovery service, because a pod that
// is injected later would get no configuration. From end on, each answer closes its connection: the API server would
// send a review on an idle connection, and refuse the pod if the connection is closed at that moment.
func (a *admission) serve(ctx, end context.Context, g *run.Group, l net.Listener) {
	if a.webhook == nil {
		return
	}
	answer := a.reviews.Handler
	a.reviews.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if end.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		answer.ServeHTTP(w, r)
	})
	ready := make(chan struct{}) // closed once the other injectors are known
	limited := conns.New(l, conns.Options{
		TLS: a.reviews.TLSConfig, Identify: webhook.Name, Unidentified: true, Proxies: apiServers, Rate: apiServerRate, Log: a.o.Log,
	})
	g.Add(func() error {
		if a.cluster != nil && !latest.Wait(ctx, a.cluster.namespaces.Synced()) || !latest.Wait(ctx, ready) {
			return limited.Close()
		}
		go a.reviews.Serve(limited.Identified()) // returns when the listener is closed
		go a.reviews.Serve(limited.Anonymous())
		return limited.Serve()
	}, func(error) {
		limited.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := a.reviews.Shutdown(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.o.Log.Warn("ending reviews", "error", err)
			a.reviews.Close()
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { a.followInjection(ctx); return nil }, func(error) { cancel() })
	g.Add(func() error { a.followOtherInjectors(ctx, ready); return nil }, func(error) { cancel() })
}
