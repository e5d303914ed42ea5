package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

// Options of an installation or a removal.
type Options struct {
	*kubeclient.Client // its namespace contains the control plane
	Values             map[string]any
	DryRun             bool // the API server validates everything, but nothing is written

	helm func() (*action.Configuration, error) // Helm's configuration in tests; nil: as in [Options.configuration]
}

// maxHistory is the number of releases that are kept for a roll-back. It is Helm's default.
const maxHistory = 10

// helmTimeout is the time limit of single steps of Helm, which does not wait for pods here.
const helmTimeout = 5 * time.Minute

// configuration returns Helm's configuration. It stores releases as Secrets in the namespace, like the helm command.
func (o Options) configuration() (*action.Configuration, error) {
	if o.helm != nil {
		return o.helm()
	}
	c := &action.Configuration{}
	if err := c.Init(o.Flags, o.Namespace, "secret", func(string, ...any) {}); err != nil {
		return nil, err
	}
	c.Releases.MaxHistory = maxHistory
	return c, nil
}

// Apply installs the release, or upgrades an existing one. If an earlier run was interrupted, it first completes that
// work. It does not wait for the control plane; [Options.Await] does.
func Apply(ctx context.Context, o Options) (*release.Release, error) {
	c, err := Chart()
	if err != nil {
		return nil, err
	}
	if _, err := render(c, o.Namespace, o.Values); err != nil {
		return nil, err // invalid values must be found before anything is changed
	}
	helm, err := o.configuration()
	if err != nil {
		return nil, err
	}
	name := nameOf(o.Values)
	if o.DryRun {
		return o.try(ctx, helm, c, name)
	}
	if err := o.ensureNamespace(ctx); err != nil {
		return nil, err
	}
	unlock, err := o.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := o.ensureDefinitions(ctx, c); err != nil {
		return nil, err
	}
	last, err := o.recover(ctx, helm, name)
	if err != nil {
		return nil, err
	}
	r, err := o.run(ctx, helm, c, name, last)
	if err != nil {
		return nil, fmt.Errorf("release %s/%s: %w", o.Namespace, name, err)
	}
	o.Progress.Step("release %s/%s, revision %d: applied", r.Namespace, r.Name, r.Version)
	return r, nil
}

// run installs the release, or upgrades the last one.
func (o Options) run(ctx context.Context, helm *action.Configuration, c *chart.Chart, name string, last *release.Release) (*release.Release, error) {
	if last == nil || last.Info.Status == release.StatusUninstalled {
		i := action.NewInstall(helm)
		i.ReleaseName, i.Namespace, i.SkipCRDs, i.Timeout = name, o.Namespace, true, helmTimeout
		i.Replace = last != nil // the release in last was removed by helm uninstall --keep-history
		i.DryRun = o.DryRun
		if o.DryRun {
			i.DryRunOption = "server"
		}
		return i.RunWithContext(ctx, c, o.Values)
	}
	u := action.NewUpgrade(helm)
	u.Namespace, u.SkipCRDs, u.Timeout, u.MaxHistory = o.Namespace, true, helmTimeout, maxHistory
	u.ResetValues = true // the same command must have the same result, independently of earlier values
	u.DryRun = o.DryRun
	if o.DryRun {
		u.DryRunOption = "server"
	}
	return u.RunWithContext(ctx, name, c, o.Values)
}

// try makes a dry run: it renders the chart with the cluster's capabilities, and the API server validates the
// objects.
func (o Options) try(ctx context.Context, helm *action.Configuration, c *chart.Chart, name string) (*release.Release, error) {
	last, err := last(helm, name)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Info.Status.IsPending() {
		return nil, fmt.Errorf("release %s/%s is %s: without --dry-run it is recovered", o.Namespace, name, last.Info.Status)
	}
	return o.run(ctx, helm, c, name, last)
}

// last returns the newest revision of a release, or nil if there is none.
func last(helm *action.Configuration, name string) (*release.Release, error) {
	r, err := helm.Releases.Last(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading release %s: %w", name, err)
	}
	return r, nil
}

// madeBy is the label of objects that an installation creates outside of the release. A removal may delete only
// objects with this label.
const madeBy, madeByUs = contract.MadeByLabel, "outrider"

// ensureNamespace creates the namespace if it does not exist.
func (o Options) ensureNamespace(ctx context.Context) error {
	namespaces := o.Core.CoreV1().Namespaces()
	_, err := namespaces.Get(ctx, o.Namespace, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: o.Namespace, Labels: map[string]string{madeBy: madeByUs},
	}}, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil {
		o.Progress.Step("namespace %s: made", o.Namespace)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// taken reports whether a CustomResourceDefinition of the Gateway API is the official one. It may have replaced
// ours, and still have our label.
func taken(definition *unstructured.Unstructured) bool {
	return definition.GetAnnotations()["gateway.networking.k8s.io/bundle-version"] != ""
}

// fieldManager is the field manager of objects that are written without Helm.
const fieldManager = "outrider-install"

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// ensureDefinitions adds missing CustomResourceDefinitions, and upgrades those that an installation has added,
// because Helm never upgrades them. It does not change the definitions of other owners, who decide about their
// versions.
func (o Options) ensureDefinitions(ctx context.Context, c *chart.Chart) error {
	all, err := definitionsOf(c)
	if err != nil {
		return err
	}
	client := o.Dynamic.Resource(definitions)
	for _, d := range all {
		labels := maps.Clone(d.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		labels[madeBy] = cmp.Or(labels[madeBy], madeByUs)
		d.SetLabels(labels)
		is, err := client.Get(ctx, d.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, d, metav1.CreateOptions{FieldManager: fieldManager})
		case err == nil && (is.GetLabels()[madeBy] == "" || taken(is)):
			o.Progress.Step("CustomResourceDefinition %s: there already, not changed", d.GetName())
			continue
		case err == nil:
			d.SetResourceVersion(is.GetResourceVersion())
			_, err = client.Update(ctx, d, metav1.UpdateOptions{FieldManager: fieldManager})
		}
		if err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", d.GetName(), err)
		}
		o.Progress.Step("CustomResourceDefinition %s: applied", d.GetName())
	}
	return nil
}
