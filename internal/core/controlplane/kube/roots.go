package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
)

// fieldManager is outriderd's name in the managedFields of objects.
const fieldManager = "outriderd"

// Roots provides the root certificates that pods trust; a [ca.Authority] implements it.
type Roots interface {
	RootsPEM() []byte
	Changed() <-chan struct{}
}

// A sum is the SHA-256 of the roots in a ConfigMap or a ClusterTrustBundle.
type sum [sha256.Size]byte

// A RootKeeper writes the mesh's roots into a ConfigMap in every namespace.
type RootKeeper struct {
	cluster    *Cluster
	namespaces *Namespaces
	roots      Roots
	own        string // the control plane's namespace, which gets the ConfigMap even if injection ignores it
	written    *store[sum]
	queue      workqueue.TypedRateLimitingInterface[string]
}

// RootKeeper returns a keeper for a control plane; own is that control plane's namespace.
func (c *Cluster) RootKeeper(n *Namespaces, roots Roots, own string) *RootKeeper {
	return &RootKeeper{cluster: c, namespaces: n, roots: roots, own: own, written: newStore(func(_ sum, o metav1.Object) sum {
		var s sum
		if m, ok := o.(*corev1.ConfigMap); ok {
			s = sha256.Sum256([]byte(m.Data[contract.RootKey]))
		}
		return s
	})}
}

// writers is the number of namespaces that are updated at the same time.
const writers = 4

// Run writes the ConfigMap wherever it is missing or differs, until ctx ends. It does so when a namespace is
// created, the roots change, or the ConfigMap is edited or deleted. It logs failures and tries again.
func (k *RootKeeper) Run(ctx context.Context) error {
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second))
	k.written.changed = func(n types.NamespacedName, before, now sum, exists bool) {
		if !exists || before != now {
			k.queue.Add(n.Namespace)
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer k.queue.ShutDown()
	running.Go(func() {
		k.cluster.follow(ctx, feedOf("the ConfigMaps "+contract.RootConfigMap, k.cluster.core.CoreV1().ConfigMaps(metav1.NamespaceAll), one(contract.RootConfigMap)), k.written, nil)
	})
	if !latest.Wait(ctx, k.namespaces.Synced()) || !latest.Wait(ctx, k.written.synced) {
		return ctx.Err()
	}
	for range writers {
		running.Go(func() { k.work(ctx) })
	}
	changed := k.roots.Changed()
	k.namespaces.follow(k.queue.Add)
	for {
		select {
		case <-changed:
			changed = k.roots.Changed()
			for _, n := range k.namespaces.store.names() {
				k.queue.Add(n.Name)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (k *RootKeeper) work(ctx context.Context) {
	for {
		namespace, end := k.queue.Get()
		if end {
			return
		}
		tried := "writing the ConfigMap " + namespace + "/" + contract.RootConfigMap
		err := k.write(ctx, namespace)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			k.cluster.trouble.note(tried, nil)
			k.queue.Forget(namespace)
		default:
			k.cluster.trouble.note(tried, explain(tried, err))
			k.queue.AddRateLimited(namespace)
		}
		k.queue.Done(namespace)
	}
}

// write updates the ConfigMap in a namespace, if the namespace should have one and it is missing or differs.
func (k *RootKeeper) write(ctx context.Context, namespace string) error {
	ns, exists := k.namespaces.store.get(types.NamespacedName{Name: namespace})
	if !exists || ns.terminating || slices.Contains(contract.IgnoredNamespaces, namespace) && namespace != k.own {
		return nil
	}
	pem := k.roots.RootsPEM()
	if len(pem) == 0 {
		return errors.New("there are no roots")
	}
	if has, ok := k.written.get(types.NamespacedName{Namespace: namespace, Name: contract.RootConfigMap}); ok && has == sha256.Sum256(pem) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// Server-side apply needs one request whether the ConfigMap exists or not, and keeps fields that others
	// added. It also needs permission for this name only, whereas create needs permission for all names.
	_, err := k.cluster.core.CoreV1().ConfigMaps(namespace).Apply(ctx,
		applycore.ConfigMap(contract.RootConfigMap, namespace).WithLabels(map[string]string{"app": "outriderd"}).WithData(map[string]string{contract.RootKey: string(pem)}),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace is being deleted
	}
	if err == nil {
		k.cluster.log.Info("the mesh's roots are in the namespace", "namespace", namespace, "configmap", contract.RootConfigMap)
	}
	return err
}
