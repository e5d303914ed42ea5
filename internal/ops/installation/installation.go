// Package installation describes the objects of an installation of Outrider, for the packages that make, check and
// remove it.
package installation

import (
	"fmt"
	"slices"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/injectors"
)

// Namespace is the default namespace of an installation.
const Namespace = "outrider-system"

// A Release is a release of Helm with which Outrider is installed.
type Release struct {
	Name        string
	Objects     []*unstructured.Unstructured // objects of the release
	Definitions []*unstructured.Unstructured // CustomResourceDefinitions, which are added if they are missing
}

// Annotations by which Helm marks the objects of a release.
const (
	NameAnnotation      = "meta.helm.sh/release-name"
	NamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// RolledOut returns the reason why the roll-out of a deployment is not complete, or an empty string if it is.
func RolledOut(d *appsv1.Deployment) string {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	for _, c := range d.Status.Conditions {
		failing := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failing {
			return c.Message
		}
	}
	switch {
	case d.Status.ObservedGeneration < d.Generation:
		return "the roll-out has not begun"
	case d.Status.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d replicas are of the newest revision", d.Status.UpdatedReplicas, want)
	case d.Status.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d replicas are ready", d.Status.AvailableReplicas, want)
	case d.Status.Replicas > d.Status.UpdatedReplicas:
		return fmt.Sprintf("replicas of an older revision that have not ended: %d", d.Status.Replicas-d.Status.UpdatedReplicas)
	}
	return ""
}

// Injectors returns the webhook configurations that send pods to the control plane in a namespace.
func Injectors(all []admission.MutatingWebhookConfiguration, namespace string) []admission.MutatingWebhookConfiguration {
	return slices.DeleteFunc(slices.Clone(all), func(c admission.MutatingWebhookConfiguration) bool {
		return !injectors.Ours(c) || slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool {
			return w.ClientConfig.Service != nil && w.ClientConfig.Service.Namespace != namespace
		})
	})
}

// NoRoots reports whether a namespace never gets the roots, because no pod there is injected.
func NoRoots(namespace string) bool { return slices.Contains(contract.IgnoredNamespaces, namespace) }
