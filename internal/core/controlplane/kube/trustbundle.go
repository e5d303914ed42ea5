package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
)

// A TrustAPI is a usable version of the ClusterTrustBundle API. Kubelet is the first minor version of
// Kubernetes whose kubelet mounts bundles in pods; 0: every kubelet of the cluster does.
type TrustAPI struct {
	Version string
	Kubelet uint
}

// TrustAPIs are the versions that are enabled in each cluster that has them: since 1.37 neither the API
// server nor the kubelet has a switch for bundles. In older versions there is a switch
// (ClusterTrustBundleProjection), which is off by default. Clients cannot see its state, and while it is off,
// a pod with a bundle loses its volume or never starts.
var TrustAPIs = []TrustAPI{{"v1", 37}}

// SwitchedTrustAPIs are the versions for a cluster whose administrator has enabled bundles in both the API
// server and the kubelets.
var SwitchedTrustAPIs = []TrustAPI{{"v1", 0}, {"v1beta1", 0}}

// A TrustBundle writes the mesh's roots into one ClusterTrustBundle, which pods in any namespace can
// mount.
type TrustBundle struct {
	cluster *Cluster
	roots   Roots
	apis    []TrustAPI
	usable  latest.Value[bool]
}

// TrustBundle returns a writer of the bundle, which uses the first of apis that the cluster serves.
func (c *Cluster) TrustBundle(roots Roots, apis []TrustAPI) *TrustBundle {
	return &TrustBundle{cluster: c, roots: roots, apis: apis}
}

// Usable reports whether pods may mount the bundle: it must contain the roots, and each node's kubelet must
// be able to mount it. The channel is closed when the result changes.
func (b *TrustBundle) Usable() (bool, <-chan struct{}) { return b.usable.Get() }

func (b *TrustBundle) set(usable bool) {
	if was, _ := b.usable.Get(); was == usable {
		return
	}
	b.usable.Set(usable)
	b.cluster.log.Info("injected pods mount the mesh's roots from the ClusterTrustBundle", "name", contract.TrustBundle, "usable", usable)
}

// lookAgain is the interval between discoveries of the API, because clusters are upgraded while a control
// plane runs.
const lookAgain = 10 * time.Minute

// Run maintains the bundle until ctx ends. While the cluster does not serve the API, Run looks for the API
// every ten minutes.
func (b *TrustBundle) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		api, err := b.find()
		const tried = "finding the API of ClusterTrustBundles"
		switch {
		case err != nil:
			b.cluster.trouble.note(tried, explain(tried, err))
			latest.Wait(ctx, time.After(writeAgain))
			continue
		case api.Version == "":
			b.cluster.trouble.forget(tried)
			latest.Wait(ctx, time.After(lookAgain))
			continue
		}
		b.cluster.trouble.note(tried, nil)
		return b.keep(ctx, api)
	}
	return ctx.Err()
}

// find returns the first of b.apis that the cluster serves; the zero value if it serves none.
func (b *TrustBundle) find() (TrustAPI, error) {
	for _, api := range b.apis {
		list, err := b.cluster.core.Discovery().ServerResourcesForGroupVersion("certificates.k8s.io/" + api.Version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return TrustAPI{}, err
		}
		for _, r := range list.APIResources {
			if r.Name == trustBundles {
				return api, nil
			}
		}
	}
	return TrustAPI{}, nil
}

const trustBundles = "clustertrustbundles"

// writeAgain is the pause after a failure.
const writeAgain = 2 * time.Second

// keep writes the bundle whenever it differs from the roots.
func (b *TrustBundle) keep(ctx context.Context, api TrustAPI) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	changes := make(chan struct{}, 1)
	hint := func() {
		select {
		case changes <- struct{}{}:
		default: // a hint is pending; everything will be read once it is received
		}
	}
	resource := b.cluster.dynamic.Resource(schema.GroupVersionResource{Group: "certificates.k8s.io", Version: api.Version, Resource: trustBundles})
	written := newStore(func(_ sum, o metav1.Object) sum { return bundleSum(o) })
	written.changed = func(types.NamespacedName, sum, sum, bool) { hint() }
	running.Go(func() {
		b.cluster.follow(ctx, feedOf("the ClusterTrustBundle "+contract.TrustBundle, resource, one(contract.TrustBundle)), written, nil)
	})
	// The value of a node is true if the node's kubelet is too old; a missing node counts as false. So the
	// value also changes when such a node joins or leaves.
	kubelets := newStore(func(_ bool, o metav1.Object) bool { return !mounts(o, api.Kubelet) })
	kubelets.changed = func(_ types.NamespacedName, before, now, _ bool) {
		if before != now {
			hint()
		}
	}
	if api.Kubelet > 0 {
		running.Go(func() {
			b.cluster.follow(ctx, feedOf("the kubelets' versions of nodes", b.cluster.core.CoreV1().Nodes(), nil), kubelets, nil)
		})
		if !latest.Wait(ctx, kubelets.synced) {
			return ctx.Err()
		}
	}
	if !latest.Wait(ctx, written.synced) {
		return ctx.Err()
	}
	for ctx.Err() == nil {
		changed := b.roots.Changed()
		err := b.write(ctx, resource.Apply, written, api.Version)
		const tried = "writing the ClusterTrustBundle " + contract.TrustBundle
		if ctx.Err() != nil {
			break
		}
		pause := lookAgain
		if b.cluster.trouble.note(tried, nil); err != nil {
			b.cluster.trouble.note(tried, explain(tried, err))
			pause = writeAgain
		}
		b.set(err == nil && !anywhere(kubelets))
		select {
		case <-changed:
		case <-changes:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

type applyFunc func(ctx context.Context, name string, o *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error)

// write writes the bundle if it differs from the roots.
func (b *TrustBundle) write(ctx context.Context, apply applyFunc, written *store[sum], version string) error {
	pem := b.roots.RootsPEM()
	if len(pem) == 0 {
		return errors.New("there are no roots")
	}
	if has, ok := written.get(types.NamespacedName{Name: contract.TrustBundle}); ok && has == sha256.Sum256(pem) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	labels := map[string]any{}
	for key, value := range madeHere {
		labels[key] = value
	}
	_, err := apply(ctx, contract.TrustBundle, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/" + version, "kind": "ClusterTrustBundle",
		"metadata": map[string]any{"name": contract.TrustBundle, "labels": labels},
		"spec":     map[string]any{"signerName": contract.TrustSigner, "trustBundle": string(pem)},
	}}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err == nil {
		b.cluster.log.Info("the mesh's roots are in the ClusterTrustBundle", "name", contract.TrustBundle)
	}
	return err
}

// bundleSum returns the SHA-256 of the roots in a ClusterTrustBundle.
func bundleSum(o metav1.Object) sum {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return sum{}
	}
	text, _, _ := unstructured.NestedString(u.Object, "spec", "trustBundle")
	return sha256.Sum256([]byte(text))
}

// mounts reports whether a node's kubelet has at least this minor version of Kubernetes 1.
func mounts(o metav1.Object, minor uint) bool {
	node, ok := o.(*corev1.Node)
	if !ok {
		return false
	}
	v, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	return err == nil && v.AtLeast(version.MustParseGeneric(fmt.Sprintf("1.%d.0", minor)))
}

// anywhere reports whether the value of any object in the store is true.
func anywhere(s *store[bool]) bool {
	return slices.ContainsFunc(s.names(), func(n types.NamespacedName) bool {
		is, _ := s.get(n)
		return is
	})
}
