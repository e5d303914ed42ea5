package kube

import (
	"context"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookConfigurations are those of a cluster; one of them is followed.
type WebhookConfigurations struct {
	cluster  *Cluster
	followed *presence
}

// WebhookConfigurations follows the MutatingWebhookConfiguration of a name until ctx ends.
func (c *Cluster) WebhookConfigurations(ctx context.Context, name string) *WebhookConfigurations {
	resource := c.metadata.Resource(admission.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"))
	return &WebhookConfigurations{c, c.presence(ctx, feedOf("the MutatingWebhookConfiguration "+name, resource, one(name)))}
}

// Changed is closed when somebody has written the one that is followed.
func (w *WebhookConfigurations) Changed() <-chan struct{} {
	_, changed := w.followed.now()
	return changed
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
