package kube

import (
	"context"
	"sync"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// WebhookConfigurations are MutatingWebhookConfigurations of a cluster, as far as they are
// known.
type WebhookConfigurations struct {
	cluster *Cluster
	store   *store[admission.MutatingWebhookConfiguration]

	mu      sync.Mutex
	changed map[string]chan struct{} // by name; "": any of them
}

// WebhookConfigurations follows the one of that name until ctx ends; an empty name is all.
func (c *Cluster) WebhookConfigurations(ctx context.Context, name string) *WebhookConfigurations {
	var which fields.Selector
	if name != "" {
		which = one(name)
	}
	w := &WebhookConfigurations{cluster: c, changed: map[string]chan struct{}{}, store: newStore(asked)}
	w.store.changed = func(n types.NamespacedName, _, _ admission.MutatingWebhookConfiguration, _ bool) { w.tell(n.Name) }
	go c.follow(ctx, feedOf("mutatingwebhookconfigurations", c.core.AdmissionregistrationV1().MutatingWebhookConfigurations(), which), w.store, nil)
	return w
}

// asked is what is kept of one: whom its webhooks are asked about.
func asked(_ admission.MutatingWebhookConfiguration, o metav1.Object) admission.MutatingWebhookConfiguration {
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

// Synced is closed when all are known that there were at the start.
func (w *WebhookConfigurations) Synced() <-chan struct{} { return w.store.synced }

// All returns those that are followed, by name, rules and selectors; of their webhooks the rest is left out.
func (w *WebhookConfigurations) All() []admission.MutatingWebhookConfiguration {
	var out []admission.MutatingWebhookConfiguration
	for _, n := range w.store.names() {
		if c, ok := w.store.get(n); ok {
			out = append(out, c)
		}
	}
	return out
}

// Changed is closed when somebody has written the configuration of that name, or deleted
// it; an empty name is any.
func (w *WebhookConfigurations) Changed(name string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed[name] == nil {
		w.changed[name] = make(chan struct{})
	}
	return w.changed[name]
}

func (w *WebhookConfigurations) tell(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range []string{name, ""} {
		if c := w.changed[key]; c != nil {
			close(c)
			delete(w.changed, key)
		}
	}
}

// Get asks the API server.
func (w *WebhookConfigurations) Get(ctx context.Context, name string) (*admission.MutatingWebhookConfiguration, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	c, err := w.cluster.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explain("asking the API server", err)
	}
	return c, nil
}

// Update writes one, unless somebody else has since it was read.
func (w *WebhookConfigurations) Update(ctx context.Context, c *admission.MutatingWebhookConfiguration) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, err := w.cluster.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return explain("asking the API server", err)
	}
	return nil
}
