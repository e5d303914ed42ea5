package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// Dependents returns the pods that have a proxy of a revision, whose default is [contract.DefaultRevision], and the number
// of pods with a proxy of another one. A pod that does not name its revision depends on each.
func Dependents(ctx context.Context, core kubernetes.Interface, revision string) (pods []corev1.Pod, others int, err error) {
	all, err := kubeclient.Meshed(ctx, core, "", "")
	pods = slices.DeleteFunc(slices.Clone(all), func(p corev1.Pod) bool {
		_, by := changes.InjectedBy(&p)
		return by != "" && by != cmp.Or(revision, contract.DefaultRevision)
	})
	return pods, len(all) - len(pods), err
}

// Remove removes a release, and waits until its pods have ended. If there is no release, it does nothing. It does not
// remove the objects that the control plane itself has written; [Purge] does.
func Remove(ctx context.Context, o Options) error {
	helm, err := o.configuration()
	if err != nil {
		return err
	}
	name := nameOf(o.Values)
	r, err := last(helm, name)
	switch {
	case err != nil:
		return err
	case r == nil:
		o.Progress.Step("there is no release %s/%s", o.Namespace, name)
		return nil
	case o.DryRun:
		o.Progress.Step("release %s/%s, revision %d: would be removed", o.Namespace, name, r.Version)
		return nil
	}
	unlock, err := o.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := o.uninstall(ctx, helm, r); err != nil {
		return err
	}
	o.Progress.Step("release %s/%s: removed", o.Namespace, name)
	return o.awaitEnd(ctx, r)
}

// uninstall removes the objects of a release, the webhook configuration first. If the webhook's server were removed
// before, the API server would refuse pods; without the configuration, pods start without a proxy.
func (o Options) uninstall(ctx context.Context, helm *action.Configuration, r *release.Release) error {
	objects, err := objectsOf(r.Manifest)
	if err != nil {
		return fmt.Errorf("release %s: %w", r.Name, err)
	}
	for _, object := range objects {
		if object.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		err := o.Core.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		o.Progress.Step("MutatingWebhookConfiguration %s: removed, pods start without a proxy", object.GetName())
	}
	u := action.NewUninstall(helm)
	u.Timeout, u.IgnoreNotFound, u.DeletionPropagation = helmTimeout, true, "background"
	if _, err := u.Run(r.Name); err != nil {
		return fmt.Errorf("release %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// awaitEnd waits until no pod of a release is left, because a terminating pod could still write objects that a purge
// has just removed.
func (o Options) awaitEnd(ctx context.Context, r *release.Release) error {
	objects, err := objectsOf(r.Manifest)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := o.awaitNoPods(ctx, object.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) awaitNoPods(ctx context.Context, deployment string) error {
	of := func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return owner != nil && strings.HasPrefix(owner.Name, deployment+"-")
	}
	pods := o.Core.CoreV1().Pods(o.Namespace)
	_, err := kubeclient.AwaitNone(ctx, pods, metav1.ListOptions{LabelSelector: replicas.Selector}, &corev1.Pod{}, of, func(left, _ int) {
		if left > 0 {
			o.Progress.Wait("waiting for the end of %d pods of %s/%s", left, o.Namespace, deployment)
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of the pods of %s/%s: %w", o.Namespace, deployment, err)
	}
	return nil
}

// A leftover is a kind of object that may remain after a removal.
type leftover struct {
	resource schema.GroupVersionResource
	options  metav1.ListOptions
	all      bool // the objects are in all namespaces, or cluster-scoped; otherwise in the control plane's namespace
}

// leftovers lists the objects that the control plane and [Apply] create outside of the release.
func leftovers() []leftover {
	made := metav1.ListOptions{LabelSelector: madeBy} // made by the control plane or by an installation
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return []leftover{
		{core("configmaps"), kubeclient.Named(contract.RootConfigMap), true},
		{core("configmaps"), made, false}, // for example the ConfigMap that records the used tokens
		{core("secrets"), made, false},    // the authority's keys
		{leases, made, false},
		{trustBundles("v1"), kubeclient.Named(contract.TrustBundle), true},
		{trustBundles("v1beta1"), kubeclient.Named(contract.TrustBundle), true},
		{definitions, made, true},
	}
}

// trustBundles returns the ClusterTrustBundle resource in one of the versions that a cluster may serve.
func trustBundles(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "certificates.k8s.io", Version: version, Resource: "clustertrustbundles"}
}

// An InUseError means that another control plane needs the objects that a purge would remove.
type InUseError struct{ By []string }

func (e *InUseError) Error() string {
	return "still used by " + strings.Join(e.By, ", ") + ": roots and kinds are one for the cluster"
}

// Purge removes what is left after all releases are removed: the roots in all namespaces, the
// authority's keys and other objects of the control plane, the CustomResourceDefinitions that [Apply]
// added, with all objects of these kinds, and the namespace if [Apply] created it.
func Purge(ctx context.Context, o Options) error {
	if err := o.inUse(ctx); err != nil {
		return err
	}
	verb := "removed"
	if o.DryRun {
		verb = "would be removed"
	}
	for _, l := range leftovers() {
		in := o.Namespace
		if l.all {
			in = metav1.NamespaceAll
		}
		list, err := o.Dynamic.Resource(l.resource).Namespace(in).List(ctx, l.options)
		if apierrors.IsNotFound(err) && l.resource.Group == trustBundles("").Group {
			continue // the cluster does not serve this version
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", l.resource.Resource, err)
		}
		for _, object := range list.Items {
			if l.resource == definitions {
				why, err := o.keeps(ctx, &object)
				if err != nil {
					return err
				}
				if why != "" {
					o.Progress.Step("%s %s: stays, because %s", object.GetKind(), object.GetName(), why)
					continue
				}
			}
			client := o.Dynamic.Resource(l.resource).Namespace(object.GetNamespace())
			err := o.delete(ctx, client, object.GetName())
			if err == nil && !o.DryRun && l.resource == definitions { // it disappears only after all objects of its kind
				err = kubeclient.AwaitGone(ctx, client, object.GetName(), &unstructured.Unstructured{})
			}
			if err != nil {
				return fmt.Errorf("removing %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			o.Progress.Step("%s %s: %s", object.GetKind(), strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"), verb)
		}
	}
	return o.removeNamespace(ctx, verb)
}

// keeps returns the reason why a definition must stay, or an empty string. Definitions of the Gateway API may have to
// stay, because other controllers use them too.
func (o Options) keeps(ctx context.Context, definition *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	resource, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	switch {
	case taken(definition):
		return "it is the Gateway API's own", nil
	case group != "gateway.networking.k8s.io":
		return "", nil
	}
	list, err := o.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err): // the cluster does not serve the kind
		return "", nil
	case err != nil:
		return "", fmt.Errorf("listing %s: %w", resource, err)
	case len(list.Items) > 0:
		return fmt.Sprintf("there are objects of it, such as %s/%s", list.Items[0].GetNamespace(), list.Items[0].GetName()), nil
	}
	return "", nil
}

func (o Options) delete(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	d := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if o.DryRun {
		d.DryRun = []string{metav1.DryRunAll}
	}
	if err := client.Delete(ctx, name, d); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// inUse returns an InUseError if a control plane still exists. In a dry run it ignores the control plane of the
// release, which would have been removed before.
func (o Options) inUse(ctx context.Context) error {
	list, err := o.Core.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: replicas.Selector})
	if err != nil {
		return err
	}
	var by []string
	for _, d := range list.Items {
		own := d.Namespace == o.Namespace && d.Annotations[installation.NameAnnotation] == nameOf(o.Values)
		if d.DeletionTimestamp == nil && !(o.DryRun && own) {
			by = append(by, "deployment "+d.Namespace+"/"+d.Name)
		}
	}
	if len(by) > 0 {
		return &InUseError{by}
	}
	return nil
}

// removeNamespace removes the control plane's namespace, if Apply created it and nothing else is in it, and waits
// until it is gone.
func (o Options) removeNamespace(ctx context.Context, verb string) error {
	namespaces := o.Core.CoreV1().Namespaces()
	n, err := namespaces.Get(ctx, o.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case n.Labels[madeBy] != madeByUs:
		o.Progress.Step("namespace %s: stays, because it was there before the installation", n.Name)
		return nil
	}
	others, err := o.others(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		o.Progress.Step("namespace %s: stays, because there is more in it: %s", n.Name, strings.Join(others, ", "))
		return nil
	}
	d := metav1.DeleteOptions{}
	if o.DryRun {
		d.DryRun = []string{metav1.DryRunAll}
	}
	if err := namespaces.Delete(ctx, n.Name, d); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if !o.DryRun {
		o.Progress.Wait("waiting for the end of namespace %s", n.Name)
		if err := kubeclient.AwaitGone(ctx, namespaces, n.Name, &corev1.Namespace{}); err != nil {
			return fmt.Errorf("waiting for the end of namespace %s: %w", n.Name, err)
		}
	}
	o.Progress.Step("namespace %s: %s", n.Name, verb)
	return nil
}

// others returns the pods, and the records of other releases, in the control plane's namespace.
func (o Options) others(ctx context.Context) (out []string, err error) {
	pods, err := o.Core.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.Labels["app"] != "outriderd" {
			out = append(out, "pod "+p.Name)
		}
	}
	secrets, err := o.Core.CoreV1().Secrets(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		if what := "release " + s.Labels["name"]; !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	return out, nil
}
