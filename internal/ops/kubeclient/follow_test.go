package kubeclient

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Without the permission to list pods, FollowPod fails at once instead of waiting for ever.
func TestFollowWithoutPermission(t *testing.T) {
	core := fake.NewClientset()
	core.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
	})
	err := FollowPod(t.Context(), core, "shop", "a", func(*corev1.Pod) (bool, error) { return false, nil })
	if !apierrors.IsForbidden(err) {
		t.Errorf("%v; want it forbidden", err)
	}
}

// FollowPod returns ErrGone if the pod does not exist, or is deleted during the call.
func TestFollowPodToItsEnd(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	core := fake.NewClientset(p)
	err := FollowPod(t.Context(), core, "shop", "a", func(*corev1.Pod) (bool, error) {
		return false, DeletePod(t.Context(), core, "shop", "a")
	})
	if !errors.Is(err, ErrGone) {
		t.Errorf("%v; want %v", err, ErrGone)
	}
	if err := FollowPod(t.Context(), core, "shop", "a", nil); !errors.Is(err, ErrGone) {
		t.Errorf("%v; want %v", err, ErrGone)
	}
	if err := DeletePod(t.Context(), core, "shop", "a"); err != nil {
		t.Errorf("deleting one that does not exist: %v", err)
	}
}

// If its context ends, AwaitNone returns the names of the objects that still match, and the error of the context.
func TestAwaitNoneGivesUp(t *testing.T) {
	core := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}})
	ctx, cancel := context.WithCancel(t.Context())
	core.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { cancel(); return false, nil, nil })
	most := 0
	left, err := AwaitNone(ctx, core.CoreV1().Pods(""), metav1.ListOptions{}, &corev1.Pod{}, func(*corev1.Pod) bool { return true }, func(left, all int) { most = max(most, left, all) })
	if !slices.Equal(left, []string{"shop/a", "shop/b"}) || !errors.Is(err, context.Canceled) || most != 2 {
		t.Errorf("%q, %v, of %d", left, err, most)
	}
}
