package kubeclient

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"outrider.dev/internal/base/contract"
)

// Container returns a container or init container of a pod by its name, or nil if there is none.
func Container(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// Proxy returns the container of Outrider's proxy, a regular container or a native sidecar, or nil if the pod has
// none.
func Proxy(p *corev1.Pod) *corev1.Container { return Container(p, contract.ProxyContainer) }

// Status returns the status of a container, or nil if the kubelet has not reported one yet.
func Status(p *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		if i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == container }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// IsMeshed reports whether a pod has a proxy of Outrider and has not ended.
func IsMeshed(p *corev1.Pod) bool {
	return Proxy(p) != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// EachMeshed calls the function visit for each pod in a namespace for which [IsMeshed] is true; an empty namespace
// means all. labels is a selector in kubectl's syntax.
func EachMeshed(ctx context.Context, core kubernetes.Interface, namespace, labels string, visit func(*corev1.Pod)) error {
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return core.CoreV1().Pods(namespace).List(ctx, o)
	})
	err := all.EachListItem(ctx, metav1.ListOptions{LabelSelector: labels}, func(o runtime.Object) error {
		if p, ok := o.(*corev1.Pod); ok && IsMeshed(p) {
			visit(p)
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	return nil
}

// Meshed returns the pods that [EachMeshed] visits.
func Meshed(ctx context.Context, core kubernetes.Interface, namespace, labels string) (out []corev1.Pod, err error) {
	err = EachMeshed(ctx, core, namespace, labels, func(p *corev1.Pod) { out = append(out, *p) })
	return out, err
}
