package controlplane

import (
	"context"
	"fmt"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/pod/inject/injectors"
)

// OwnLabels determines whether only Outrider's labels request injection, or Istio's labels too.
type OwnLabels string

// Values of [OwnLabels].
const (
	// OwnLabelsAuto means on while Istio's labels select pods for another injector in the cluster; without a
	// cluster it means off.
	OwnLabelsAuto OwnLabels = "auto"
	OwnLabelsOn   OwnLabels = "on"
	OwnLabelsOff  OwnLabels = "off"
)

// ParseOwnLabels parses the value of the flag. It fails if the value is unknown, or if it is on for a named
// revision.
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

// named reports whether a revision is not the default one.
func named(revision string) bool { return revision != "" && revision != contract.DefaultRevision }

func namedError(revision string) error {
	return fmt.Errorf("revision %q is requested by Istio's label istio.io/rev, not by Outrider's labels", revision)
}

// listen reports whether only Outrider's labels request injection by a revision. For a named revision the
// result is false, or an error if the option is on: Istio's label istio.io/rev requests such a revision by
// name, and no other injector serves that name.
func (a *admission) listen(revision string) (own bool, err error) {
	switch a.o.Injection.OwnLabels {
	case OwnLabelsOn:
		if named(revision) {
			return false, namedError(revision)
		}
		return true, nil
	case OwnLabelsAuto, "":
		return !named(revision) && len(a.otherInjectors()) > 0, nil
	}
	return false, nil
}

// watchesOtherInjectors reports whether the result of listen depends on other injectors in the cluster.
func (o Options) watchesOtherInjectors() bool {
	auto := o.Injection.OwnLabels == OwnLabelsAuto || o.Injection.OwnLabels == ""
	return auto && o.Cluster != nil && o.Webhook != ""
}

// otherInjectors returns the names of the other injectors for which Istio's labels select pods.
func (a *admission) otherInjectors() []string {
	if !a.o.watchesOtherInjectors() || a.cluster.configurations == nil { // configurations are not watched yet
		return nil
	}
	return injectors.Others(a.cluster.configurations.All())
}

// followOtherInjectors updates injection when another injector appears or disappears, and logs that. It
// closes known once it has read the injectors that exist at the start.
func (a *admission) followOtherInjectors(ctx context.Context, known chan<- struct{}) {
	if !a.o.watchesOtherInjectors() {
		close(known)
		<-ctx.Done()
		return
	}
	if !latest.Wait(ctx, a.cluster.configurations.Synced()) {
		return
	}
	var before []string
	for first := true; ; first = false {
		changed := a.cluster.configurations.Changed()
		if now := a.otherInjectors(); !slices.Equal(before, now) {
			a.logOtherInjectors(before, now, a.useInjection().OwnLabels)
			before = now
		}
		if first {
			close(known)
		}
		if !latest.Wait(ctx, changed) {
			return
		}
	}
}

func (a *admission) logOtherInjectors(before, now []string, own bool) {
	switch {
	case own:
		a.o.Log.Warn("Istio's labels select pods for another injector: only outrider.dev/injection and outrider.dev/inject request injection here; --own-labels=off accepts both",
			"webhook_configurations", now)
	case len(now) == 0:
		a.o.Log.Info("Istio's labels select pods for no other injector any more: they request injection here again", "webhook_configurations", before)
	}
}
