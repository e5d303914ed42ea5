package kubeclient

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// A lister is the client for objects of one kind, such as a PodInterface.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

type object interface {
	runtime.Object
	metav1.Object
}

// Named returns options that select the object with a name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// Follow passes the selected objects to the callback listed. Then it passes each of these objects to the callback
// changed, and again after each change. It ends when a callback returns true or an error. It may call listed again,
// with all objects at that time. kind is an empty object of the kind. If ctx ends before, Follow returns the error of
// ctx.
func Follow[L runtime.Object, T object](ctx context.Context, client lister[L], which metav1.ListOptions, kind T,
	listed func([]T) (done bool, err error), changed func(o T, deleted bool) (done bool, err error)) error {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector, o.LabelSelector = which.FieldSelector, which.LabelSelector
		return o
	}
	// This request fails immediately if the caller may not list the objects; an informer would retry without an
	// error.
	first, err := client.List(ctx, which)
	if err != nil {
		return err
	}
	objects, err := meta.ExtractList(first)
	if err != nil {
		return err
	}
	if done, err := listed(ofKind[T](objects)); done || err != nil {
		return err
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, selected(o))
		},
	}
	_, err = watchtools.UntilWithSync(ctx, source, kind, func(s cache.Store) (bool, error) {
		return listed(ofKind[T](s.List()))
	}, func(e watch.Event) (bool, error) {
		if o, ok := e.Object.(T); ok {
			return changed(o, e.Type == watch.Deleted)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil { // client-go returns other errors when ctx ends
		return ctx.Err()
	}
	return err
}

func ofKind[T, E any](all []E) (out []T) {
	for _, o := range all {
		if is, ok := any(o).(T); ok {
			out = append(out, is)
		}
	}
	return out
}

// Await waits until the function reason returns "" for one of the selected objects. It passes every other result to
// the function waits.
func Await[L runtime.Object, T object](ctx context.Context, client lister[L], which metav1.ListOptions, kind T, reason func(T) string, waits func(reason string)) error {
	return Follow(ctx, client, which, kind, func([]T) (bool, error) { return false, nil }, func(o T, deleted bool) (bool, error) {
		if deleted {
			return false, nil
		}
		why := reason(o)
		if why != "" {
			waits(why)
		}
		return why == "", nil
	})
}

// AwaitNone waits until each selected object is deleted, or the function match returns false for it. It passes to the
// function waits the number of objects that match, and the number of all objects at the beginning. If it fails, it
// also returns the names of the objects that still match.
func AwaitNone[L runtime.Object, T object](ctx context.Context, client lister[L], which metav1.ListOptions, kind T,
	match func(T) bool, waits func(left, all int)) (names []string, err error) {
	left, all := map[string]bool{}, 0
	nameOf := func(o T) string { return cache.MetaObjectToName(o).String() }
	err = Follow(ctx, client, which, kind, func(objects []T) (bool, error) {
		all = len(objects)
		clear(left)
		for _, o := range objects {
			if match(o) {
				left[nameOf(o)] = true
			}
		}
		waits(len(left), all)
		return len(left) == 0, nil
	}, func(o T, deleted bool) (bool, error) {
		if delete(left, nameOf(o)); !deleted && match(o) {
			left[nameOf(o)] = true
		}
		waits(len(left), all)
		return len(left) == 0, nil
	})
	for name := range left { // any order: the names are sorted
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

// AwaitGone waits until the named object no longer exists.
func AwaitGone[L runtime.Object, T object](ctx context.Context, client lister[L], name string, kind T) error {
	_, err := AwaitNone(ctx, client, Named(name), kind, func(o T) bool { return o.GetName() == name }, func(int, int) {})
	return err
}

// ErrGone means that a followed pod does not exist or was deleted.
var ErrGone = errors.New("the pod has been deleted meanwhile")

// FollowPod passes a pod to the callback changed, and again after each change of the pod, until the callback returns
// true or an error. It returns ErrGone if the pod does not exist or is deleted.
func FollowPod(ctx context.Context, core kubernetes.Interface, namespace, name string, changed func(*corev1.Pod) (done bool, err error)) error {
	return Follow(ctx, core.CoreV1().Pods(namespace), Named(name), &corev1.Pod{}, func(all []*corev1.Pod) (bool, error) {
		if len(all) == 0 {
			return false, ErrGone
		}
		return false, nil
	}, func(p *corev1.Pod, deleted bool) (bool, error) {
		switch {
		case p.Name != name: // a fake API server ignores the selector
			return false, nil
		case deleted:
			return false, ErrGone
		}
		return changed(p)
	})
}

// RequestTime is the time limit of requests that continue after their ctx has ended.
const RequestTime = 15 * time.Second

// DeletePod deletes a pod, even if ctx has ended.
func DeletePod(ctx context.Context, core kubernetes.Interface, namespace, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTime)
	defer cancel()
	err := core.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
