package podrestart

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/injectors"
)

// removeLabels removes from the namespaces all labels that request injection.
func (o Options) removeLabels(ctx context.Context) error {
	namespaces, err := o.namespaces(ctx)
	if err != nil {
		return err
	}
	l, err := o.Core.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing webhook configurations: %w", err)
	}
	others, revisions := injectors.Others(l.Items), revisionsOf(l.Items)
	for _, n := range namespaces {
		keys := requests(n)
		if rev := n.Labels[contract.RevisionLabel]; rev != "" && len(revisions) > 0 && !revisions[rev] {
			o.Progress.Step("namespace %s: %s=%s stays, because no Outrider control plane has that revision", n.Name, contract.RevisionLabel, rev)
			keys = slices.DeleteFunc(keys, func(key string) bool { return key == contract.RevisionLabel })
		}
		if len(others) > 0 && slices.ContainsFunc(keys, istios) {
			o.Progress.Step("namespace %s: Istio's labels stay, because %s reads them too", n.Name, strings.Join(others, ", "))
			keys = slices.DeleteFunc(keys, istios)
		}
		if len(keys) == 0 {
			continue
		}
		if o.DryRun {
			o.Progress.Step("namespace %s: %s would be removed", n.Name, strings.Join(keys, ", "))
			continue
		}
		gone := map[string]any{}
		for _, key := range keys {
			gone[key] = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": gone}})
		if err != nil {
			return err
		}
		if _, err := o.Core.CoreV1().Namespaces().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "outrider"}); err != nil {
			return fmt.Errorf("namespace %s: removing the labels %s: %w", n.Name, strings.Join(keys, ", "), err)
		}
		o.Progress.Step("namespace %s: %s removed", n.Name, strings.Join(keys, ", "))
	}
	return nil
}

func (o Options) namespaces(ctx context.Context) ([]corev1.Namespace, error) {
	if o.Namespace != "" {
		n, err := o.Core.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []corev1.Namespace{*n}, nil
	}
	l, err := o.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	return l.Items, nil
}

// requests returns the labels of a namespace that request injection. Labels that exclude a namespace from injection
// are not among them, because they may stay.
func requests(n corev1.Namespace) (keys []string) {
	for _, key := range []string{contract.NamespaceLabel, contract.OwnNamespaceLabel} {
		if n.Labels[key] == "enabled" {
			keys = append(keys, key)
		}
	}
	if n.Labels[contract.RevisionLabel] != "" {
		keys = append(keys, contract.RevisionLabel)
	}
	return keys
}

// revisionsOf returns the revisions of Outrider's control planes.
func revisionsOf(all []admission.MutatingWebhookConfiguration) map[string]bool {
	out := map[string]bool{}
	for _, c := range all {
		if injectors.Ours(c) {
			out[c.Labels[contract.RevisionLabel]] = true
		}
	}
	return out
}

func istios(key string) bool { return key != contract.OwnNamespaceLabel }
