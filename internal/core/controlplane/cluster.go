package controlplane

import (
	"context"

	"github.com/oklog/run"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/pod/inject"
)

// A cluster is a connection to an API server, with the objects that the control plane watches through it.
type cluster struct {
	*kube.Cluster
	namespaces *kube.Namespaces
	// configurations contains all webhook configurations if watchesOtherInjectors is true, otherwise only
	// ours; nil: not watched.
	configurations *kube.WebhookConfigurations
	trust          *kube.TrustBundle // nil: outriderd keeps no ClusterTrustBundle
	nodes          *kube.Nodes       // nil: not watched
}

// openCluster connects the control plane to the cluster in the options, and begins to watch its namespaces.
// It returns nil if there is no cluster.
func openCluster(ctx context.Context, o Options) *cluster {
	if o.Cluster == nil {
		return nil
	}
	c := &cluster{Cluster: o.Cluster, namespaces: o.Cluster.Namespaces(ctx)}
	if o.Nodes {
		c.nodes = o.Cluster.Nodes(ctx)
	}
	return c
}

// nodeServes reports whether outrider-node sets up the capture and the gates of pods that have no annotation
// about it.
func (a *admission) nodeServes() bool {
	if a.cluster == nil || a.cluster.nodes == nil {
		return false
	}
	serve, _ := a.cluster.nodes.Serve()
	return serve
}

// followNodes updates injection when the result of nodeServes changes.
func (a *admission) followNodes(ctx context.Context) error {
	used := false
	for first := true; ; first = false {
		serve, changed := a.cluster.nodes.Serve()
		if serve != used || first { // at first injection was configured without knowledge of the nodes
			used = serve
			a.o.Log.Info("whether the nodes capture and add the gates of pods that leave it open (outrider.dev/init: auto)", "nodes", serve)
			a.useInjection()
		}
		if !latest.Wait(ctx, changed) {
			return ctx.Err()
		}
	}
}

// Values of [Options.TrustBundle].
const (
	// TrustBundleAuto publishes the roots if the versions of the API server and the kubelets always support it
	// ([kube.TrustAPIs]).
	TrustBundleAuto = "auto"
	// TrustBundleOn publishes the roots if the cluster serves the API. The administrator must have
	// enabled it in the API server and the kubelets.
	TrustBundleOn  = "on"
	TrustBundleOff = "off"
)

// TrustBundleModes are the valid values of [Options.TrustBundle].
var TrustBundleModes = []string{TrustBundleAuto, TrustBundleOn, TrustBundleOff}

// openTrustBundle creates the controller that keeps the ClusterTrustBundle current, unless mode is off.
func (c *cluster) openTrustBundle(mode string, roots kube.Roots) {
	if apis := map[string][]kube.TrustAPI{TrustBundleAuto: kube.TrustAPIs, TrustBundleOn: kube.SwitchedTrustAPIs}[mode]; apis != nil {
		c.trust = c.TrustBundle(roots, apis)
	}
}

// trustSigner returns the signer of the ClusterTrustBundle that injected pods mount; empty: they mount the
// ConfigMap.
func (a *admission) trustSigner() string {
	if a.cluster == nil || a.cluster.trust == nil {
		return ""
	}
	if usable, _ := a.cluster.trust.Usable(); !usable {
		return ""
	}
	return contract.TrustSigner
}

// followTrustBundle updates injection when the bundle becomes usable for pods, or is no longer usable.
func (a *admission) followTrustBundle(ctx context.Context) error {
	for {
		_, changed := a.cluster.trust.Usable()
		a.useInjection()
		if !latest.Wait(ctx, changed) {
			return ctx.Err()
		}
	}
}

// openConfigurations begins to watch the MutatingWebhookConfigurations: all of them, or the one with the
// given name.
func (c *cluster) openConfigurations(ctx context.Context, all bool, name string) {
	switch {
	case all:
		c.configurations = c.WebhookConfigurations(ctx, "")
	case name != "":
		c.configurations = c.WebhookConfigurations(ctx, name)
	}
}

// namespace returns a namespace in the form that the webhook needs; false: it is unknown.
func (c *cluster) namespace(name string) (inject.Namespace, bool) {
	ns, ok := c.namespaces.Get(name)
	return inject.Namespace{Name: name, Labels: ns.Labels, Annotations: ns.Annotations}, ok
}

// reviewers returns authenticators for tokens of the cluster; none without a cluster.
func (p *plane) reviewers() []ca.Authenticator {
	if p.cluster == nil {
		return nil
	}
	return []ca.Authenticator{ca.Reviewed{
		Reviewer:    boundedReviews{p.cluster, conns.NewGate(maxReviews, maxReviewsOfOne)},
		TrustDomain: p.o.Mesh.TrustDomain, Audiences: []string{ca.DefaultAudience},
	}}
}

// webhookConfiguration returns the name of the MutatingWebhookConfiguration whose CA bundle is kept current;
// empty: none.
func (a *admission) webhookConfiguration() string {
	switch name := a.o.WebhookConfiguration; {
	case a.webhook == nil || name == "off":
		return ""
	case name != "":
		return name
	}
	usual, err := webhook.Configuration(webhook.ConfigurationOptions{Revision: revisionOf(a.used)})
	if err != nil {
		return ""
	}
	return usual.Name
}

// serveCluster adds to the group the controllers that keep objects in the cluster current.
func (p *plane) serveCluster(ctx context.Context, g *run.Group) {
	if p.cluster == nil {
		return
	}
	add := func(run func(context.Context) error) {
		ctx, cancel := context.WithCancel(ctx)
		g.Add(func() error { return run(ctx) }, func(error) { cancel() })
	}
	add(p.cluster.RootKeeper(p.cluster.namespaces, p.authority, p.o.Namespace).Run)
	if p.cluster.trust != nil {
		add(p.cluster.trust.Run)
	}
	if p.cluster.trust != nil && p.admission.webhook != nil {
		add(p.admission.followTrustBundle)
	}
	if p.cluster.nodes != nil && p.admission.webhook != nil {
		add(p.admission.followNodes)
	}
	if p.o.CASecret != "" {
		add(func(ctx context.Context) error {
			return p.cluster.UsedTokens(p.o.Namespace).Run(ctx, p.mesh.Synced(), hosts{p.mesh})
		})
	}
	if source, ok := p.mesh.(*kube.Source); ok {
		add(p.cluster.RouteStatus(p.o.Namespace, source, p.o.SkipKinds...).Run)
	}
	if p.o.Diagnoser != nil {
		add(func(ctx context.Context) error {
			return p.cluster.Lead(ctx, p.o.Namespace, contract.DiagnosisLease, p.o.Diagnoser.Run)
		})
	}
	name := p.admission.webhookConfiguration()
	if name != "" {
		add(func(ctx context.Context) error {
			all := p.cluster.configurations
			return (&webhook.Keeper{Configurations: all, Name: name, Roots: p.authority, Log: p.o.Log, Changed: all.Changed}).Run(ctx)
		})
	}
	p.o.Log.Info("with a cluster: tokens are reviewed, namespaces followed, roots and the webhook's certificates kept current",
		"server", p.cluster.Server(), "configmap", contract.RootConfigMap, "webhook_configuration", name)
}

// missing lists what was not read yet. If the list is empty, the control plane is ready.
func (p *plane) missing() []string {
	var out []string
	wait := func(what string, synced <-chan struct{}) {
		select {
		case <-synced:
		default:
			out = append(out, what+" not read yet")
		}
	}
	if !p.isOpen() {
		out = append(out, "authority: "+*p.awaited.Load())
	}
	wait("mesh:", p.mesh.Synced())
	if p.cluster != nil {
		wait("namespaces:", p.cluster.namespaces.Synced())
		if p.cluster.nodes != nil {
			wait("nodes:", p.cluster.nodes.Synced())
		}
		if p.isOpen() && p.o.watchesOtherInjectors() {
			wait("webhook configurations:", p.cluster.configurations.Synced())
		}
		if out != nil {
			out = append(out, p.cluster.Trouble()...)
		}
	}
	return out
}
