package kube

import (
	"context"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/latest"
)

// WebhookConfigurations watches the MutatingWebhookConfigurations in a cluster.
type WebhookConfigurations struct {
	cluster *Cluster
	store   *store[admission.MutatingWebhookConfiguration]
	changed latest.Value[struct{}] // set when a configuration is written or deleted
}

// WebhookConfigurations watches the configuration with this name until ctx ends. An empty name means all
// configurations.
func (c *Cluster) WebhookConfigurations(ctx context.Context, name string) *WebhookConfigurations {
	var which fields.Selector
	if name != "" {
		which = one(name)
	}
	w := &WebhookConfigurations{cluster: c, store: newStore(selectorsOf)}
	w.store.changed = func(types.NamespacedName, admission.MutatingWebhookConfiguration, admission.MutatingWebhookConfiguration, bool) {
		w.changed.Set(struct{}{})
	}
	go c.follow(ctx, feedOf("mutatingwebhookconfigurations", c.core.AdmissionregistrationV1().MutatingWebhookConfigurations(), which), w.store, nil)
	return w
}

// selectorsOf returns the parts of a configuration that the store keeps: those that determine which objects
// its webhooks review.
func selectorsOf(_ admission.MutatingWebhookConfiguration, o metav1.Object) admission.MutatingWebhookConfiguration {
	out := admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
	if c, ok := o.(*admission.MutatingWebhookConfiguration); ok {
		for _, w := range c.Webhooks {
			out.Webhooks = append(out.Webhooks, admission.MutatingWebhook{
				Name: w.Name, Rules: w.Rules, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			})
		}
	}
	return out
}

// Synced returns a channel that is closed after the first list.
func (w *WebhookConfigurations) Synced() <-chan struct{} { return w.store.synced }

// All returns the watched configurations, sorted by name. Their webhooks contain only names, rules and
// selectors.
func (w *WebhookConfigurations) All() []admission.MutatingWebhookConfiguration {
	var out []admission.MutatingWebhookConfiguration
	for _, n := range w.store.names() {
		if c, ok := w.store.get(n); ok {
			out = append(out, c)
		}
	}
	return out
}

// Changed returns a channel that is closed when a watched configuration is written or deleted. Call it before
// [WebhookConfigurations.All].
func (w *WebhookConfigurations) Changed() <-chan struct{} {
	_, changed := w.changed.Get()
	return changed
}

// Get reads a configuration from the API server.
func (w *WebhookConfigurations) Get(ctx context.Context, name string) (*admission.MutatingWebhookConfiguration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := w.cluster.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explain("reading the MutatingWebhookConfiguration "+name, err)
	}
	return c, nil
}

// Update writes a configuration. It fails if the configuration has changed since it was read.
func (w *WebhookConfigurations) Update(ctx context.Context, c *admission.MutatingWebhookConfiguration) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.cluster.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return explain("updating the MutatingWebhookConfiguration "+c.Name, err)
	}
	return nil
}
