package kube

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	"outrider.dev/internal/kubeclient"
)

// each calls do with each object of a manifest. A process of kubectl for each manifest would take
// most of the time of these tests.
func each(t *testing.T, manifest string, do func(*resource.Helper, *resource.Info) error) {
	t.Helper()
	must(t, resource.NewBuilder(kubeclient.NewFlags("default")).Unstructured().NamespaceParam("default").DefaultNamespace().
		Stream(strings.NewReader(manifest), "the test").Flatten().Do().Visit(func(o *resource.Info, err error) error {
		if err != nil {
			return err
		}
		return do(resource.NewHelper(o.Client, o.Mapping), o)
	}))
}

// apply makes or changes the objects of a manifest.
func apply(t *testing.T, manifest string) {
	t.Helper()
	each(t, manifest, func(r *resource.Helper, o *resource.Info) error {
		text, err := json.Marshal(o.Object)
		must(t, err)
		_, err = r.Patch(o.Namespace, o.Name, types.ApplyPatchType, text, &metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		return err
	})
}

// remove deletes the objects of a manifest that are there.
func remove(t *testing.T, manifest string) {
	t.Helper()
	each(t, manifest, func(r *resource.Helper, o *resource.Info) error {
		if _, err := r.Delete(o.Namespace, o.Name); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}
