package kube

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	"outrider.dev/internal/ops/kubeclient"
)

// each calls the function do for each object of a manifest. It does not start kubectl, because these processes would
// take most of the tests' time.
func each(manifest string, do func(*resource.Helper, *resource.Info) error) error {
	return resource.NewBuilder(kubeclient.NewFlags("default")).Unstructured().NamespaceParam("default").DefaultNamespace().
		Stream(strings.NewReader(manifest), "the test").Flatten().Do().Visit(func(o *resource.Info, err error) error {
		if err != nil {
			return err
		}
		return do(resource.NewHelper(o.Client, o.Mapping), o)
	})
}

// apply creates or updates the objects of a manifest. It retries, because the API server may serve a kind only some
// time after its definition is established, and a webhook may not be reachable at once after its start.
func apply(t *testing.T, manifest string) {
	t.Helper()
	var err error
	until(t, "a manifest is taken", func() bool {
		err = each(manifest, func(r *resource.Helper, o *resource.Info) error {
			text, err := json.Marshal(o.Object)
			must(t, err)
			_, err = r.Patch(o.Namespace, o.Name, types.ApplyPatchType, text, &metav1.PatchOptions{FieldManager: "test", Force: new(true)})
			return err
		})
		return !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsInternalError(err)
	}, func() string { return err.Error() })
	must(t, err)
}

// remove deletes the objects of a manifest that exist.
func remove(t *testing.T, manifest string) {
	t.Helper()
	must(t, each(manifest, func(r *resource.Helper, o *resource.Info) error {
		if _, err := r.Delete(o.Namespace, o.Name); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}))
}
