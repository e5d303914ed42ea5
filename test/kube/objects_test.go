package kube

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// objects are those of the cluster, of all kinds. A process of kubectl for each manifest would
// take most of the time of these tests.
type objects struct {
	dynamic.Interface
	*restmapper.DeferredDiscoveryRESTMapper
}

var theObjects = sync.OnceValues(func() (objects, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return objects{}, err
	}
	config.QPS = -1
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return objects{}, err
	}
	client, err := dynamic.NewForConfig(config)
	return objects{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))}, err
})

// each calls do with each object of a manifest, and the resource that it is one of.
func each(t *testing.T, manifest string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) {
	t.Helper()
	client, err := theObjects()
	must(t, err)
	for parts := documents.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest))); ; {
		text, err := parts.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal(text, &o.Object))
		if len(o.Object) == 0 {
			continue
		}
		kind := o.GroupVersionKind()
		mapping, err := client.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) { // it has been defined since
			client.Reset()
			mapping, err = client.RESTMapping(kind.GroupKind(), kind.Version)
		}
		must(t, err)
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			if o.GetNamespace() == "" {
				o.SetNamespace("default")
			}
			resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		if err := do(resource, o); err != nil {
			t.Fatalf("%s %s/%s: %v", kind.Kind, o.GetNamespace(), o.GetName(), err)
		}
	}
}

// apply makes or changes the objects of a manifest.
func apply(t *testing.T, manifest string) {
	t.Helper()
	each(t, manifest, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := r.Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	})
}

// remove deletes the objects of a manifest that are there.
func remove(t *testing.T, manifest string) {
	t.Helper()
	each(t, manifest, func(r dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		err := r.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
