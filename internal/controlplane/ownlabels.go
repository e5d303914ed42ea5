package controlplane

import (
	"context"
	"fmt"
	"slices"

	"outrider.dev/internal/controlplane/webhook"
	"outrider.dev/internal/pod/inject"
)

// OwnLabels says whether labels of ours alone ask for injection, and Istio's do not.
type OwnLabels string

// When they do.
const (
	OwnLabelsAuto OwnLabels = "auto" // while another injector in the cluster is asked by Istio's; without a cluster: off
	OwnLabelsOn   OwnLabels = "on"
	OwnLabelsOff  OwnLabels = "off"
)

// ParseOwnLabels reads one of the three, for a revision that is named by flag, or is none.
func ParseOwnLabels(text, revision string) (OwnLabels, error) {
	o := OwnLabels(text)
	switch {
	case !slices.Contains([]OwnLabels{OwnLabelsAuto, OwnLabelsOn, OwnLabelsOff}, o):
		return "", fmt.Errorf("%q: one of auto, on, off", text)
	case o == OwnLabelsOn && named(revision):
		return "", fmt.Errorf("%s: %w", text, namedError(revision))
	}
	return o, nil
}

// named says whether a revision is another one than the default.
func named(revision string) bool { return revision != "" && revision != inject.DefaultRevision }

func namedError(revision string) error {
	return fmt.Errorf("revision %q is asked for by Istio's label istio.io/rev, not by labels of ours", revision)
}

// listen says whether labels of ours alone count for a revision. One with a name is asked
// for by that, in a label of Istio's that no other injector answers to.
func (p *plane) listen(revision string) (own bool, err error) {
	switch p.o.Injection.OwnLabels {
	case OwnLabelsOn:
		if named(revision) {
			return false, namedError(revision)
		}
		return true, nil
	case OwnLabelsAuto, "":
		return !named(revision) && len(p.rivals()) > 0, nil
	}
	return false, nil
}

// followsRivals says whether other injectors in the cluster matter.
func (o Options) followsRivals() bool {
	auto := o.Injection.OwnLabels == OwnLabelsAuto || o.Injection.OwnLabels == ""
	return auto && o.Cluster != nil && o.Webhook != ""
}

// rivals are the other injectors that Istio's labels ask.
func (p *plane) rivals() []string {
	if !p.o.followsRivals() || p.cluster.configurations == nil { // not yet
		return nil
	}
	return webhook.Rivals(p.cluster.configurations.All())
}

// followRivals lets injection follow those that come and go, and says who they are. It
// closes known when those that were there at the start are.
func (p *plane) followRivals(ctx context.Context, known chan<- struct{}) {
	if !p.o.followsRivals() {
		close(known)
		<-ctx.Done()
		return
	}
	if !wait(ctx, p.cluster.configurations.Synced()) {
		return
	}
	var before []string
	for first := true; ; first = false {
		changed := p.cluster.configurations.Changed("")
		if now := p.rivals(); !slices.Equal(before, now) {
			p.sayRivals(before, now, p.useInjection().OwnLabels)
			before = now
		}
		if first {
			close(known)
		}
		if !wait(ctx, changed) {
			return
		}
	}
}

func (p *plane) sayRivals(before, now []string, own bool) {
	switch {
	case own:
		p.o.Log.Warn("another injector is asked by Istio's labels: only outrider.dev/injection and outrider.dev/inject ask for injection here; --own-labels=off listens to both",
			"webhook_configurations", now)
	case len(now) == 0:
		p.o.Log.Info("no other injector is asked by Istio's labels any more: they ask for injection here again", "webhook_configurations", before)
	}
}
