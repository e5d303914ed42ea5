package kube

import (
	"context"
	"sync"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// WebhookConfigurations watches the MutatingWebhookConfigurations in a cluster.
type WebhookConfigurations struct {
	cluster *Cluster
	store   *store[admission.MutatingWebhookConfiguration]

	mu      sync.Mutex
	changed map[string]chan struct{} // by name; "": any name
}

// WebhookConfigurations watches the configuration with this name until ctx ends; an empty name means
// all.
func (c *Cluster) WebhookConfigurations(ctx context.Context, name string) *WebhookConfigurations {
	var which fields.Selector
	if name != "" {
		which = one(name)
	}
	w := &WebhookConfigurations{cluster: c, changed: map[string]chan struct{}{}, store: newStore(selectorsOf)}
	w.store.changed = func(n types.NamespacedName, _, _ admission.MutatingWebhookConfiguration, _ bool) { w.notify(n.Name) }
	go c.follow(ctx, feedOf("mutatingwebhookconfigurations", c.core.AdmissionregistrationV1().MutatingWebhookConfigurations(), which), w.store, nil)
	return w
}

// selectorsOf returns the parts of a configuration that are kept: which objects its webhooks review.
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

// All returns the watched configurations, sorted by name. Of their webhooks they contain only names,
// rules and selectors.
func (w *WebhookConfigurations) All() []admission.MutatingWebhookConfiguration {
	var out []admission.MutatingWebhookConfiguration
	for _, n := range w.store.names() {
		if c, ok := w.store.get(n); ok {
			out = append(out, c)
		}
	}
	return out
}

// Changed returns a channel that is closed when the configuration with this name is written or deleted;
// an empty name means any.
func (w *WebhookConfigurations) Changed(name string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed[name] == nil {
		w.changed[name] = make(chan struct{})
	}
	return w.changed[name]
}

func (w *WebhookConfigurations) notify(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range []string{name, ""} {
		if c := w.changed[key]; c != nil {
			close(c)
			delete(w.changed, key)
		}
	}
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

// Update writes a configuration. It fails if it was changed since it was read.
func (w *WebhookConfigurations) Update(ctx context.Context, c *admission.MutatingWebhookConfiguration) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := w.cluster.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return explain("updating the MutatingWebhookConfiguration "+c.Name, err)
	}
	return nil
}
