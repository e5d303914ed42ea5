package kube

import (
	"context"
	"errors"
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
)

// A feed is what the API server lists and watches of one kind.
type feed struct {
	what  string // in the API's words
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// feedOf returns the feed of a client's resource, for the objects that fields select;
// nil: all.
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

// one selects the object of a name. A role may be restricted to that name, for lists and
// watches too.
func one(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// A store keeps what is wanted of each object of a kind.
type store[V any] struct {
	// read returns what is kept of an object; old is what was kept of it before.
	read func(old V, object metav1.Object) V
	// changed, if set, is told of each object that came, changed or went, in this order,
	// with what was kept before and is now.
	changed func(n types.NamespacedName, before, now V, there bool)

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

// errForeign cannot happen: a feed has objects.
var errForeign = errors.New("this is no object")

// Add is for [cache.Reflector], as are the others.
func (s *store[V]) Add(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return errForeign
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

// Update is as Add.
func (s *store[V]) Update(object any) error { return s.Add(object) }

// Delete forgets an object.
func (s *store[V]) Delete(object any) error {
	o, ok := object.(metav1.Object)
	if !ok {
		return errForeign
	}
	s.forget(nameOf(o))
	return nil
}

func (s *store[V]) forget(n types.NamespacedName) {
	before, there := s.get(n)
	if !there {
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

// Replace takes a list for all that there is.
func (s *store[V]) Replace(objects []any, _ string) error {
	there := make(map[types.NamespacedName]bool, len(objects))
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			return err
		}
		there[nameOf(object.(metav1.Object))] = true
	}
	for _, n := range s.names() {
		if !there[n] {
			s.forget(n)
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

func (s *store[V]) names() []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]types.NamespacedName, 0, len(s.items))
	for n := range s.items {
		out = append(out, n)
	}
	return out
}

// Resync does nothing: nothing is asked for.
func (s *store[V]) Resync() error { return nil }

// again is how long is waited after a failure: at most a few seconds, so that what changed
// while an API server was away is seen soon after it is back.
func again() backoff.DelayFunc {
	return backoff.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 5 * time.Second}.DelayWithReset(clock.RealClock{}, time.Minute)
}

// sleep says whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait says whether what it waits for came before the end of ctx.
func wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow keeps a store as the feed is, until ctx ends or stop says of an error that it is
// not worth another try. Without an API server the store stays as it is.
func (c *Cluster) follow(ctx context.Context, f feed, to cache.ReflectorStore, stop func(error) bool) error {
	tried := "reading " + f.what
	defer c.trouble.forget(tried)
	delay := again()
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: f.list,
		// A server that is away is waited for here: the reflector itself would wait for
		// up to a minute, and say nothing.
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			for {
				w, err := f.watch(ctx, o)
				if err == nil {
					c.trouble.note(tried, nil)
				}
				if err == nil || !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err) {
					return w, err
				}
				c.trouble.note(tried, explain(tried, err))
				if !sleep(ctx, delay()) {
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
			err = s // without the reflector's words, which say again what was tried
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			c.trouble.note(tried, explain(tried, err))
		}
		sleep(ctx, delay())
	}
	return ctx.Err()
}
