// Package injectors detects other injectors whose webhooks select the same pods as ours.
package injectors

import (
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
)

// Suffix is the common suffix of the names of our webhooks.
const Suffix = ".inject.outrider.dev"

// Others returns the names of webhook configurations of other injectors, such as Istio's own, that select the
// pods whose Istio labels request our default revision. Such a pod would get a proxy from each injector. To avoid
// that, our injector then selects pods only by its own labels.
func Others(all []admission.MutatingWebhookConfiguration) []string {
	var out []string
	for _, c := range all {
		if slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool {
			return !strings.HasSuffix(w.Name, Suffix) && onPods(w) && (requires(w.NamespaceSelector) || requires(w.ObjectSelector))
		}) {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Ours reports whether a configuration belongs to outriderd, in any revision.
func Ours(c admission.MutatingWebhookConfiguration) bool {
	return slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool { return strings.HasSuffix(w.Name, Suffix) })
}

// onPods reports whether a webhook is called for new pods.
func onPods(w admission.MutatingWebhook) bool {
	among := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(w.Rules, func(r admission.RuleWithOperations) bool {
		creates := slices.Contains(r.Operations, admission.Create) || slices.Contains(r.Operations, admission.OperationAll)
		return creates && among(r.APIGroups, "") && (among(r.Resources, "pods") || slices.Contains(r.Resources, "*/*"))
	})
}

// requests lists Istio's labels, with the values that request the default revision. Webhooks of another revision
// select other values.
var requests = map[string]string{contract.NamespaceLabel: "enabled", contract.InjectLabel: "true", contract.RevisionLabel: contract.DefaultRevision}

// requires reports whether a selector requires one of the labels in requests. Many selectors only exclude a
// value; they do not count.
func requires(s *metav1.LabelSelector) bool {
	if s == nil {
		return false
	}
	for key, value := range requests {
		if s.MatchLabels[key] == value {
			return true
		}
	}
	return slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		value, ok := requests[r.Key]
		return ok && (r.Operator == metav1.LabelSelectorOpExists || r.Operator == metav1.LabelSelectorOpIn && slices.Contains(r.Values, value))
	})
}
