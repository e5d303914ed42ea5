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
	"time"

	"github.com/oklog/run"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/lookup"
)

// Injection configures injection at admission.
type Injection struct {
	Values     string    // file with the values of Istio's charts; default: none
	MeshConfig string    // file with the mesh configuration, in Istio's format; default: none
	Revision   string    // default: the revision in Values, else "default"
	OwnLabels  OwnLabels // default auto
	// ControlPlane is the address that injected pods use; default: the Service outriderd in the control
	// plane's namespace.
	ControlPlane string

	// Images looks up the commands of containers whose pod spec names none; default: no look-up.
	Images *lookup.Resolver

	// ClientCA is a file with the roots that sign the API server's client certificates, and ClientNames
	// lists the common names that are accepted, default any. Without ClientCA the webhook answers every
	// client.
	ClientCA    string
	ClientNames []string
}

// address returns the address of the control plane for injected pods.
func (i Injection) address(namespace string) string {
	return cmp.Or(i.ControlPlane, "outriderd."+namespace+".svc:"+strconv.Itoa(contract.SecureDiscoveryPort))
}

// apiServers replaces [conns.Options.Proxies] for the webhook. An API server sends at most 200 reviews
// at a time (--max-mutating-requests-inflight), each on its own connection; one client may have four
// times apiServers connections.
const apiServers = 64

// apiServerRate allows for an API server that opens a connection for each of those reviews, because it
// keeps only 25 idle ones. A handshake takes 0.5 ms of a processor.
const apiServerRate = 500

// openWebhook makes the webhook and its certificate.
func (p *plane) openWebhook(serving *ca.Serving) error {
	if p.o.Webhook == "" {
		return nil
	}
	options, err := p.injection()
	if err != nil {
		return err
	}
	p.used = options
	o := webhook.Options{Inject: options, Namespace: p.o.Namespace, Namespaces: p.namespace, Log: p.o.Log}
	o.Unenforced = func(namespace string, labels map[string]string) []string {
		var out []string
		for _, s := range p.current().Unenforced(&mesh.Workload{Namespace: namespace, Labels: labels}) {
			out = append(out, fmt.Sprintf("%s %s", s.Key(), s.Message()))
		}
		return out
	}
	if images := p.o.Injection.Images; images != nil {
		o.Commands = images.Commands
	}
	p.webhook = webhook.New(o)
	if file := p.o.Injection.ClientCA; file != "" {
		if p.clients, err = webhook.NewClients(file, p.o.Injection.ClientNames); err != nil {
			return &OptionError{"Injection.ClientCA", err}
		}
	}
	p.reviews = p.webhook.Server(serving.Certificate, p.clients)
	return nil
}

// settings reads the current files.
func (p *plane) settings(log *slog.Logger) (out inject.Options, err error) {
	i := p.o.Injection
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

// openTelemetry reads what the proxies log, trace and count. The result stays the same until the
// process ends, because a change would change all listeners of all proxies.
func (p *plane) openTelemetry() error {
	o, err := p.settings(slog.New(slog.DiscardHandler)) // injection logs the warnings
	if err != nil {
		return err
	}
	p.o.Mesh.Telemetry, err = telemetryOf(o, p.o.Injection)
	return err
}

func telemetryOf(o inject.Options, files Injection) (telemetry.Settings, error) {
	s, err := o.Values.TelemetryIn(o.Mesh)
	switch {
	case err == nil:
		return s, nil
	case files.Values != "" && len(o.Values.MeshConfig) > 0:
		return s, &OptionError{"Injection.Values", fmt.Errorf("%s: meshConfig: %w", files.Values, err)}
	}
	return s, &OptionError{"Injection.MeshConfig", fmt.Errorf("%s: %w", files.MeshConfig, err)}
}

// injection reads the current files and returns the options for injection.
func (p *plane) injection() (inject.Options, error) {
	out, err := p.settings(p.o.Log)
	if err != nil {
		return out, err
	}
	i := p.o.Injection
	out.Revision, out.ProbeKey, out.ControlPlane, out.TrustSigner, out.NodeServes = i.Revision, inject.RandomProbeKey, i.address(p.o.Namespace), p.trustSigner(), p.nodeServes()
	s, err := telemetryOf(out, i)
	if err != nil {
		return out, err
	}
	if !reflect.DeepEqual(s, p.o.Mesh.Telemetry) {
		p.o.Log.Warn("changes of access logs, tracing and request metrics take effect when outriderd starts again", "values", i.Values, "mesh_config", i.MeshConfig)
	}
	if out.OwnLabels, err = p.listen(revisionOf(out)); err != nil {
		return out, err
	}
	if err := p.checkTrustDomain(out); err != nil {
		return out, err
	}
	if out.Mesh.TrustDomain == "" {
		out.Mesh.TrustDomain = p.o.Mesh.TrustDomain
	}
	return out, nil
}

// checkTrustDomain refuses files that would make each pod request a certificate that this control plane
// does not sign.
func (p *plane) checkTrustDomain(o inject.Options) error {
	pods, source, err := o.Values.TrustDomainIn(o.Mesh)
	if err != nil || pods == "" || pods == p.o.Mesh.TrustDomain {
		return err
	}
	option, file, field := "Injection.MeshConfig", p.o.Injection.MeshConfig, "trustDomain"
	if source == settings.InValues {
		option, file, field = "Injection.Values", p.o.Injection.Values, "meshConfig.trustDomain"
	}
	return &OptionError{option, fmt.Errorf("%s: %s: %q: certificates are signed for %q; want that, or --trust-domain=%s", file, field, pods, p.o.Mesh.TrustDomain, pods)}
}

// revisionOf returns the revision that pods request; empty: the default.
func revisionOf(o inject.Options) string { return cmp.Or(o.Revision, o.Values.Revision) }

// pollFiles is how often files are read that cannot be watched.
const pollFiles = 2 * time.Second

// followInjection reads the files again when they change. A file with a mistake is not used.
func (p *plane) followInjection(ctx context.Context) {
	stop := wire.WatchFiles(pollFiles, func() { p.useInjection() }, p.o.Injection.Values, p.o.Injection.MeshConfig, p.o.Injection.ClientCA)
	defer stop()
	p.useInjection() // they may have changed before they were watched
	<-ctx.Done()
}

// useInjection reads the files and the list of other injectors again, and returns the options that are
// in force from now on.
func (p *plane) useInjection() inject.Options {
	p.using.Lock() // so that the options read last are used last
	defer p.using.Unlock()
	options, err := p.injection()
	if err != nil {
		p.o.Log.Error("injection goes on as before", "error", err)
		options = p.used
		options.TrustSigner, options.NodeServes = p.trustSigner(), p.nodeServes()
		if own, err := p.listen(revisionOf(options)); err == nil {
			options.OwnLabels = own // known even if the files are invalid
		}
	}
	p.used = options
	p.webhook.Use(options)
	if p.clients != nil {
		if err := p.clients.Reload(); err != nil {
			p.o.Log.Error("the former roots of the webhook's clients stay in use", "error", err)
		}
	}
	return options
}

// serveWebhook adds the webhook to the group. It is the first to stop: a pod that is injected after the
// discovery service has stopped would get no configuration.
func (p *plane) serveWebhook(ctx context.Context, g *run.Group, l net.Listener) {
	if p.webhook == nil {
		return
	}
	ready := make(chan struct{}) // closed once the other injectors are known
	limited := conns.New(l, conns.Options{
		TLS: p.reviews.TLSConfig, Identify: webhook.Name, Unidentified: true, Proxies: apiServers, Rate: apiServerRate, Log: p.o.Log,
	})
	g.Add(func() error {
		if p.cluster != nil && !latest.Wait(ctx, p.cluster.namespaces.Synced()) || !latest.Wait(ctx, ready) {
			return limited.Close()
		}
		go p.reviews.Serve(limited.Identified()) // returns when the listener is closed
		go p.reviews.Serve(limited.Anonymous())
		return limited.Serve()
	}, func(error) {
		limited.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := p.reviews.Shutdown(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
			p.o.Log.Warn("ending reviews", "error", err)
			p.reviews.Close()
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { p.followInjection(ctx); return nil }, func(error) { cancel() })
	g.Add(func() error { p.followOtherInjectors(ctx, ready); return nil }, func(error) { cancel() })
}
