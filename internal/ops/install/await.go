package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/release"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// Await waits until the control plane of a release has rolled out, its webhook has the certificates, and each
// namespace has the roots. It watches the objects and does not poll. It fails if ctx ends before.
func (o Options) Await(ctx context.Context, r *release.Release) error {
	objects, err := objectsOf(r.Manifest)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			if err := o.awaitRollout(ctx, object.GetName()); err != nil {
				return err
			}
		}
	}
	for _, object := range objects {
		if object.GetKind() == "MutatingWebhookConfiguration" {
			if err := o.awaitBundle(ctx, object.GetName()); err != nil {
				return err
			}
		}
	}
	return o.awaitRoots(ctx)
}

func (o Options) awaitRollout(ctx context.Context, name string) error {
	what, last := fmt.Sprintf("deployment %s/%s", o.Namespace, name), "it does not exist"
	err := kubeclient.Await(ctx, o.Core.AppsV1().Deployments(o.Namespace), kubeclient.Named(name), &appsv1.Deployment{}, installation.RolledOut, func(reason string) {
		last = reason
		o.Progress.Wait("%s: %s", what, reason)
	})
	if err != nil {
		return o.notReady(ctx, what, last, err)
	}
	o.Progress.Step("%s: ready", what)
	return nil
}

// notReady returns an error with the reasons why the pods of the control plane are not ready.
func (o Options) notReady(ctx context.Context, what, reason string, err error) error {
	pods, listed := o.Core.CoreV1().Pods(o.Namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{LabelSelector: replicas.Selector})
	if listed == nil {
		for _, p := range pods.Items {
			if why := waitsFor(&p); why != "" && !strings.Contains(reason, why) {
				reason += fmt.Sprintf("; pod %s: %s", p.Name, why)
			}
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s is not ready in time: %s", what, reason)
	}
	return fmt.Errorf("waiting for %s: %s: %w", what, reason, err)
}

// waitsFor returns the reason why a pod is not ready, from the scheduler or the kubelet. It may be empty.
func waitsFor(p *corev1.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

func (o Options) awaitBundle(ctx context.Context, name string) error {
	what := "MutatingWebhookConfiguration " + name
	configurations := o.Core.AdmissionregistrationV1().MutatingWebhookConfigurations()
	err := kubeclient.Await(ctx, configurations, kubeclient.Named(name), &admission.MutatingWebhookConfiguration{}, func(c *admission.MutatingWebhookConfiguration) string {
		if slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 }) {
			return "has no certificates yet"
		}
		return ""
	}, func(reason string) { o.Progress.Wait("%s: %s", what, reason) })
	if err != nil {
		return fmt.Errorf("waiting until the control plane has written the certificates into %s: %w", what, err)
	}
	o.Progress.Step("%s: has the certificates", what)
	return nil
}

// awaitRoots waits until all namespaces have the roots. Namespaces that are created after the call do not count.
func (o Options) awaitRoots(ctx context.Context) error {
	list, err := o.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, n := range list.Items {
		if n.DeletionTimestamp == nil && !installation.NoRoots(n.Name) {
			without[n.Name] = true
		}
	}
	all := len(without)
	roots := o.Core.CoreV1().ConfigMaps(metav1.NamespaceAll)
	err = kubeclient.Await(ctx, roots, kubeclient.Named(contract.RootConfigMap), &corev1.ConfigMap{}, func(m *corev1.ConfigMap) string {
		if m.Data[contract.RootKey] != "" {
			delete(without, m.Namespace)
		}
		if len(without) == 0 {
			return ""
		}
		return fmt.Sprintf("in %d of %d namespaces", all-len(without), all)
	}, func(reason string) { o.Progress.Wait("roots: %s", reason) })
	if err != nil {
		return fmt.Errorf("waiting until the roots are in %d more of %d namespaces: %w", len(without), all, err)
	}
	o.Progress.Step("roots: in %d namespaces", all)
	return nil
}
