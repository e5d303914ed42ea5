package kube

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Namespace contains those fields of a namespace that outriderd needs.
type Namespace struct {
	Labels, Annotations map[string]string
	terminating         bool
}

// Namespaces is a copy of a cluster's namespaces, which a watch keeps up to date.
type Namespaces struct {
	cluster *Cluster
	store   *store[Namespace]

	observer atomic.Pointer[func(name string)]
}

// Namespaces watches the namespaces until ctx ends.
func (c *Cluster) Namespaces(ctx context.Context) *Namespaces {
	n := &Namespaces{cluster: c, store: newStore(func(_ Namespace, o metav1.Object) Namespace { return namespaceOf(o) })}
	n.store.changed = func(name types.NamespacedName, _, _ Namespace, _ bool) {
		if f := n.observer.Load(); f != nil {
			(*f)(name.Name)
		}
	}
	go c.follow(ctx, feedOf("namespaces", c.core.CoreV1().Namespaces(), nil), n.store, nil)
	return n
}

func namespaceOf(o metav1.Object) Namespace {
	out := Namespace{Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
	if ns, ok := o.(*corev1.Namespace); ok {
		out.terminating = ns.Status.Phase == corev1.NamespaceTerminating
	}
	return out
}

// Synced returns a channel that is closed after the first list.
func (n *Namespaces) Synced() <-chan struct{} { return n.store.synced }

// getTimeout is shorter than the API server's timeout for the webhook.
const getTimeout = 2 * time.Second

// Get returns a namespace; false: there is none, or it could not be read. If the watch has not delivered the
// namespace yet, Get reads it from the API server, because the first pod in a new namespace may be reviewed
// before the watch delivers it.
func (n *Namespaces) Get(name string) (Namespace, bool) {
	if ns, ok := n.store.get(types.NamespacedName{Name: name}); ok {
		return ns, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), getTimeout)
	defer cancel()
	ns, err := n.cluster.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	const tried = "reading a new namespace"
	switch {
	case apierrors.IsNotFound(err):
		return Namespace{}, false
	case err != nil:
		n.cluster.trouble.note(tried, explain(tried, err))
		return Namespace{}, false
	}
	n.cluster.trouble.note(tried, nil)
	return namespaceOf(ns), true
}

// follow calls a function for each namespace, and later for each one that is added, updated or deleted. A
// later call of follow replaces the function.
func (n *Namespaces) follow(f func(name string)) {
	n.observer.Store(&f)
	for _, name := range n.store.names() {
		f(name.Name)
	}
}
