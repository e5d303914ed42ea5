package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
)

// The ConfigMap that pods find the mesh's roots in, in their own namespace; package inject
// mounts it.
const (
	RootConfigMap = "outrider-ca-root-cert"
	rootKey       = "root-cert.pem"
)

// fieldManager is who writes, as managedFields have it.
const fieldManager = "outriderd"

// rootless are the namespaces that get none: no pod there is in a mesh (Istio:
// pkg/kube/inject/initializer.go, IgnoredNamespaces).
var rootless = map[string]bool{
	metav1.NamespaceSystem: true, metav1.NamespacePublic: true, corev1.NamespaceNodeLease: true, "local-path-storage": true,
}

// Roots are what pods trust: an identity.Authority.
type Roots interface {
	RootsPEM() []byte
	Changed() <-chan struct{}
}

// A sum is what is kept of a ConfigMap: whether it says the right thing.
type sum [sha256.Size]byte

// A RootKeeper keeps the mesh's roots in every namespace.
type RootKeeper struct {
	cluster    *Cluster
	namespaces *Namespaces
	roots      Roots
	own        string // the namespace of the control plane, which gets one whatever it is called
	written    *store[sum]
	queue      workqueue.TypedRateLimitingInterface[string]
}

// RootKeeper returns a keeper for a control plane in the namespace own.
func (c *Cluster) RootKeeper(n *Namespaces, roots Roots, own string) *RootKeeper {
	return &RootKeeper{cluster: c, namespaces: n, roots: roots, own: own, written: newStore(func(_ sum, o metav1.Object) sum {
		var s sum // of another object than a ConfigMap: written again, which says why not
		if m, ok := o.(*corev1.ConfigMap); ok {
			s = sha256.Sum256([]byte(m.Data[rootKey]))
		}
		return s
	})}
}

// writers is how many namespaces are written to at a time.
const writers = 4

// Run writes the ConfigMap where it is missing or another, at once when a namespace is
// new, the roots change, or somebody has changed or deleted it, until ctx ends. What fails
// is logged and tried again.
func (k *RootKeeper) Run(ctx context.Context) error {
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second))
	k.written.changed = func(n types.NamespacedName, before, now sum, there bool) {
		if !there || before != now {
			k.queue.Add(n.Namespace)
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer k.queue.ShutDown()
	running.Go(func() {
		k.cluster.follow(ctx, feedOf("the ConfigMaps "+RootConfigMap, k.cluster.core.CoreV1().ConfigMaps(metav1.NamespaceAll), one(RootConfigMap)), k.written, nil)
	})
	if !wait(ctx, k.namespaces.Synced()) || !wait(ctx, k.written.synced) {
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
		tried := "writing the ConfigMap " + namespace + "/" + RootConfigMap
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

// write writes into a namespace, if that is to have the roots and has not.
func (k *RootKeeper) write(ctx context.Context, namespace string) error {
	ns, there := k.namespaces.store.get(types.NamespacedName{Name: namespace})
	if !there || ns.terminating || rootless[namespace] && namespace != k.own {
		return nil
	}
	pem := k.roots.RootsPEM()
	if len(pem) == 0 {
		return errors.New("there are no roots")
	}
	if has, ok := k.written.get(types.NamespacedName{Namespace: namespace, Name: RootConfigMap}); ok && has == sha256.Sum256(pem) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	// Applied by the server: one request whether it is there or not, what others added
	// stays, and the role needs no more than this one name, which "create" would.
	_, err := k.cluster.core.CoreV1().ConfigMaps(namespace).Apply(ctx,
		applycore.ConfigMap(RootConfigMap, namespace).WithLabels(map[string]string{"app": "outriderd"}).WithData(map[string]string{rootKey: string(pem)}),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace goes, or is gone
	}
	if err == nil {
		k.cluster.log.Info("the mesh's roots are in the namespace", "namespace", namespace, "configmap", RootConfigMap)
	}
	return err
}
