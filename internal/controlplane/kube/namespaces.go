package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Namespace is what is kept of one.
type Namespace struct {
	Labels, Annotations map[string]string
	terminating         bool
}

// Namespaces are those of a cluster, as far as they are known.
type Namespaces struct {
	cluster *Cluster
	store   *store[Namespace]

	mu   sync.Mutex
	tell []func(name string)
}

// Namespaces follows the namespaces until ctx ends.
func (c *Cluster) Namespaces(ctx context.Context) *Namespaces {
	n := &Namespaces{cluster: c, store: newStore(func(_ Namespace, o metav1.Object) Namespace { return namespaceOf(o) })}
	n.store.changed = func(name types.NamespacedName, _, _ Namespace, _ bool) {
		n.mu.Lock()
		tell := n.tell
		n.mu.Unlock()
		for _, f := range tell {
			f(name.Name)
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

// Synced is closed when all are known that there were at the start.
func (n *Namespaces) Synced() <-chan struct{} { return n.store.synced }

// askWithin is less than what the API server waits for a webhook.
const askWithin = 2 * time.Second

// Get returns a namespace. One that is not known yet is asked for: the first pod of a new
// namespace may be quicker than the news of it.
func (n *Namespaces) Get(name string) (Namespace, bool) {
	if ns, ok := n.store.get(types.NamespacedName{Name: name}); ok {
		return ns, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	ns, err := n.cluster.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	const tried = "reading a namespace that is new"
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

// follow tells f of each namespace, and from then on of each that comes, changes or goes.
func (n *Namespaces) follow(f func(name string)) {
	n.mu.Lock()
	n.tell = append(n.tell[:len(n.tell):len(n.tell)], f)
	n.mu.Unlock()
	for _, name := range n.store.names() {
		f(name.Name)
	}
}
