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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/check"
)

// Await waits until the control plane of a release has rolled out, its webhook has the
// certificates, and each namespace the roots. It watches, and returns with the event.
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

// A lister is a client of one kind.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// watched lists and watches what some options select.
func watched[L runtime.Object](client lister[L], which metav1.ListOptions) cache.ListerWatcher {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector, o.LabelSelector = which.FieldSelector, which.LabelSelector
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, selected(o))
		},
	}
}

// followFrom watches from a version on, for events that a new list would not have: deletions.
func followFrom(ctx context.Context, l cache.ListerWatcher, version string, done func(watch.Event) (bool, error)) error {
	_, err := watchtools.Until(ctx, version, l, done)
	return err
}

// one selects the object of a name.
func one(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// awaitObject waits until what is listed has an object that waits for nothing, as reason says. It
// returns the last reason.
func awaitObject[T runtime.Object](ctx context.Context, o Options, l cache.ListerWatcher, of T, what, done string, reason func(T) string) (last string, err error) {
	last = "it does not exist"
	_, err = watchtools.UntilWithSync(ctx, l, of, nil, func(e watch.Event) (bool, error) {
		object, ok := e.Object.(T)
		if !ok || e.Type == watch.Deleted {
			return false, nil
		}
		if last = reason(object); last != "" {
			o.Progress.Wait("%s: %s", what, last)
		}
		return last == "", nil
	})
	if err == nil {
		o.Progress.Step("%s: %s", what, done)
	}
	return last, err
}

func (o Options) awaitRollout(ctx context.Context, name string) error {
	what := fmt.Sprintf("deployment %s/%s", o.Client.Namespace, name)
	l := watched(o.Client.Core.AppsV1().Deployments(o.Client.Namespace), one(name))
	reason, err := awaitObject(ctx, o, l, &appsv1.Deployment{}, what, "ready", check.RolledOut)
	if err != nil {
		return o.notReady(ctx, what, reason, err)
	}
	return nil
}

// notReady says what the pods of the control plane wait for.
func (o Options) notReady(ctx context.Context, what, reason string, err error) error {
	pods, listed := o.Client.Core.CoreV1().Pods(o.Client.Namespace).List(context.WithoutCancel(ctx), metav1.ListOptions{LabelSelector: selector})
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

// waitsFor is why a pod is not ready, as the scheduler and the kubelet say it.
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
	l := watched(o.Client.Core.AdmissionregistrationV1().MutatingWebhookConfigurations(), one(name))
	_, err := awaitObject(ctx, o, l, &admission.MutatingWebhookConfiguration{}, what, "has the certificates", func(c *admission.MutatingWebhookConfiguration) string {
		if slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 }) {
			return "has no certificates yet"
		}
		return ""
	})
	if err != nil {
		return fmt.Errorf("waiting until the control plane has written the certificates into %s: %w", what, err)
	}
	return nil
}

// awaitRoots waits until the namespaces that exist now have the roots.
func (o Options) awaitRoots(ctx context.Context) error {
	list, err := o.Client.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, n := range list.Items {
		if n.DeletionTimestamp == nil && !check.NoRoots(n.Name) {
			without[n.Name] = true
		}
	}
	all := len(without)
	l := watched(o.Client.Core.CoreV1().ConfigMaps(metav1.NamespaceAll), one(contract.RootConfigMap))
	_, err = awaitObject(ctx, o, l, &corev1.ConfigMap{}, "roots", fmt.Sprintf("in %d namespaces", all), func(m *corev1.ConfigMap) string {
		if m.Data[contract.RootKey] != "" {
			delete(without, m.Namespace)
		}
		if len(without) == 0 {
			return ""
		}
		return fmt.Sprintf("in %d of %d namespaces", all-len(without), all)
	})
	if err != nil {
		return fmt.Errorf("waiting until the roots are in %d more of %d namespaces: %w", len(without), all, err)
	}
	return nil
}

// selector is the label of all objects of the control plane.
const selector = "app=outriderd"
