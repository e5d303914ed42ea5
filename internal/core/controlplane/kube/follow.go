package kube

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	backoff "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"outrider.dev/internal/base/latest"
)

// A feed lists and watches objects of one kind.
type feed struct {
	what  string // the resource, for messages
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	quiet bool // failures are not noted, because another feed notes the same failures
}

// feedOf returns a feed of a client's resource. It contains only objects that the selector matches; nil
// matches all.
func feedOf[L runtime.Object](what string, client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, selector fields.Selector) feed {
	text := ""
	if selector != nil {
		text = selector.String()
	}
	return feed{
		what: what,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = text
			return client.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = text
			return client.Watch(ctx, o)
		},
	}
}

// one selects an object by name. A role can restrict even list and watch to that name.
func one(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// A store contains a value for each object of a kind.
type store[V any] struct {
	// read returns the value for an object; old is the previous value.
	read func(old V, object metav1.Object) V
	// changed is called after an object was added, updated or deleted, with the previous and the new
	// value. It may be nil.
	changed func(n types.NamespacedName, before, now V, exists bool)

	mu     sync.RWMutex
	items  map[types.NamespacedName]V
	synced chan struct{}
	once   sync.Once
}

func newStore[V any](read func(old V, object metav1.Object) V) *store[V] {
	return &store[V]{read: read, items: map[types.NamespacedName]V{}, synced: make(chan struct{})}
}

func (s *store[V]) get(n types.NamespacedName) (V, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.items[n]
	return v, ok
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// errNoObject cannot occur, because all objects of a feed have the same type.
var errNoObject = errors.New("not an object of this kind")

// Add stores the value for an object. Add, Update, Delete, Replace and Resync implement
// [cache.ReflectorStore].
func (s *store[V]) Add(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return errNoObject
	}
	n := nameOf(o)
	before, _ := s.get(n)
	now := s.read(before, o)
	s.mu.Lock()
	s.items[n] = now
	s.mu.Unlock()
	if s.changed != nil {
		s.changed(n, before, now, true)
	}
	return nil
}

// Update does the same as Add.
func (s *store[V]) Update(object any) error { return s.Add(object) }

// Delete removes an object.
func (s *store[V]) Delete(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return errNoObject
	}
	s.remove(nameOf(o))
	return nil
}

func (s *store[V]) remove(n types.NamespacedName) {
	before, exists := s.get(n)
	if !exists {
		return
	}
	s.mu.Lock()
	delete(s.items, n)
	s.mu.Unlock()
	if s.changed != nil {
		var none V
		s.changed(n, before, none, false)
	}
}

// Replace replaces the whole content by the values for a list of objects.
func (s *store[V]) Replace(objects []any, _ string) error {
	listed := make(map[types.NamespacedName]bool, len(objects))
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
		listed[nameOf(object.(metav1.Object))] = true
	}
	for _, n := range s.names() {
		if !listed[n] {
			s.remove(n)
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// names returns the names of all objects, sorted.
func (s *store[V]) names() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(s.items), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Resync does nothing, because no resync period is set.
func (s *store[V]) Resync() error { return nil }

// retryDelay returns the pauses after failures. They grow to a few seconds at most, so that changes are
// noticed soon after an API server has returned.
func retryDelay() backoff.DelayFunc {
	return backoff.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 5 * time.Second}.DelayWithReset(clock.RealClock{}, time.Minute)
}

// follow updates a store from a feed, until ctx ends or stop returns true for an error. While the API server
// does not answer, the store does not change.
func (c *Cluster) follow(ctx context.Context, f feed, to cache.ReflectorStore, stop func(error) bool) error {
	tried := "reading " + f.what
	defer c.trouble.forget(tried)
	note := c.trouble.note
	if f.quiet {
		note = func(string, error) {}
	}
	delay := retryDelay()
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: f.list,
		// Retries are made here, because the reflector's own are up to a minute apart and it does not log
		// them.
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			for {
				w, err := f.watch(ctx, o)
				if err == nil {
					note(tried, nil)
				}
				if err == nil || !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err) {
					return w, err
				}
				note(tried, explain(tried, err))
				if !latest.Wait(ctx, time.After(delay())) {
					return nil, ctx.Err()
				}
			}
		},
	}, nil, to, cache.ReflectorOptions{Name: f.what, TypeDescription: f.what})
	for ctx.Err() == nil {
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			break
		}
		if stop != nil && stop(err) {
			return err
		}
		if s := (*apierrors.StatusError)(nil); errors.As(err, &s) {
			err = s // the reflector's text would repeat the failed operation
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			note(tried, explain(tried, err))
		}
		latest.Wait(ctx, time.After(delay()))
	}
	return ctx.Err()
}
