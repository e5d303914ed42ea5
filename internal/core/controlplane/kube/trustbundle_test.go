package kube

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testcore "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/roots"
)

func nodeOf(name, kubelet string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet}}}
}

// serving returns a cluster whose API server serves ClusterTrustBundles in the given version; empty: not at
// all. The channel receives each bundle that is applied.
func serving(version string, nodes ...runtime.Object) (c *Cluster, applied chan *unstructured.Unstructured) {
	core := fake.NewClientset(nodes...)
	core.Resources = []*metav1.APIResourceList{{GroupVersion: "certificates.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "certificatesigningrequests"}}}}
	if version != "" {
		core.Resources = append(core.Resources, &metav1.APIResourceList{GroupVersion: "certificates.k8s.io/" + version, APIResources: []metav1.APIResource{{Name: trustBundles}}})
	}
	if version == "v1" {
		core.Resources = core.Resources[1:]
	}
	resource := schema.GroupVersionResource{Group: "certificates.k8s.io", Version: cmp.Or(version, "v1"), Resource: trustBundles}
	bundles := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "ClusterTrustBundleList"})
	applied = make(chan *unstructured.Unstructured, 10)
	bundles.PrependReactor("patch", trustBundles, func(action testcore.Action) (bool, runtime.Object, error) {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(action.(testcore.PatchAction).GetPatch(), o); err != nil {
			return true, nil, err
		}
		applied <- o
		if err := bundles.Tracker().Create(resource, o, ""); apierrors.IsAlreadyExists(err) {
			return true, o, bundles.Tracker().Update(resource, o, "") // an apply creates or updates
		} else if err != nil {
			return true, nil, err
		}
		return true, o, nil
	})
	log := slog.New(slog.DiscardHandler)
	return &Cluster{core: core, dynamic: bundles, log: log, trouble: troubles{log: log}}, applied
}

// watches returns a channel that receives a value when a watch of a kind begins. A test must wait for it,
// because a fake client loses changes between a list and its watch.
func watches(core *fake.Clientset, resource, namespace string) <-chan struct{} {
	begun := make(chan struct{}, 10)
	core.PrependWatchReactor(resource, func(testcore.Action) (bool, watch.Interface, error) {
		w, err := core.Tracker().Watch(corev1.SchemeGroupVersion.WithResource(resource), namespace)
		begun <- struct{}{}
		return true, w, err
	})
	return begun
}

// The bundle has our signer's name. It is usable once it contains the roots and each kubelet can mount it.
func TestTrustBundle(t *testing.T) {
	old, young := nodeOf("old", "v1.36.9"), nodeOf("young", "v1.37.2+k3s1")
	c, applied := serving("v1", old, young)
	b := c.TrustBundle(roots.New("roots"), TrustAPIs)
	watching := watches(c.core.(*fake.Clientset), "nodes", "")
	ctx := t.Context()
	go b.Run(ctx)
	o := <-applied
	<-watching
	signer, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
	text, _, _ := unstructured.NestedString(o.Object, "spec", "trustBundle")
	if o.GetName() != contract.TrustBundle || o.GetAPIVersion() != "certificates.k8s.io/v1" || signer != contract.TrustSigner || text != "roots" || !isMadeHere(o) {
		t.Errorf("applied: %v", o)
	}
	usable, changed := b.Usable()
	if usable {
		t.Error("usable with a kubelet of 1.36")
	}
	nodes := c.core.CoreV1().Nodes()
	for i, step := range []struct {
		what string
		do   func() error
	}{
		{"the old node is upgraded", func() error {
			_, err := nodes.Update(ctx, nodeOf("old", "v1.37.0"), metav1.UpdateOptions{})
			return err
		}},
		{"an older one joins", func() error {
			_, err := nodes.Create(ctx, nodeOf("older", "v1.35.1"), metav1.CreateOptions{})
			return err
		}},
		{"that one leaves", func() error { return nodes.Delete(ctx, "older", metav1.DeleteOptions{}) }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		<-changed
		if usable, changed = b.Usable(); usable != (i != 1) {
			t.Errorf("%s: usable %t", step.what, usable)
		}
	}
}

// The version of the API is one that the cluster serves. For versions with a switch, an operator must have
// turned the switch on.
func TestTrustAPIs(t *testing.T) {
	for name, tt := range map[string]struct {
		served string
		apis   []TrustAPI
		want   string
	}{
		"none is served":            {"", SwitchedTrustAPIs, ""},
		"v1 by itself":              {"v1", TrustAPIs, "v1"},
		"v1beta1 has a switch":      {"v1beta1", TrustAPIs, ""},
		"v1beta1 as you say":        {"v1beta1", SwitchedTrustAPIs, "v1beta1"},
		"v1 where both are allowed": {"v1", SwitchedTrustAPIs, "v1"},
	} {
		c, _ := serving(tt.served)
		got, err := c.TrustBundle(roots.New("roots"), tt.apis).find()
		if err != nil || got.Version != tt.want {
			t.Errorf("%s: %q, %v; want %q", name, got.Version, err, tt.want)
		}
	}
}
