package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A presence is whether there is an object, and when it was changed.
type presence struct {
	synced <-chan struct{}

	mu      sync.Mutex
	there   bool
	changed chan struct{}
}

// presence follows an object that a feed has none or one of, until ctx ends.
func (c *Cluster) presence(ctx context.Context, f feed) *presence {
	s := newStore(func(struct{}, metav1.Object) struct{} { return struct{}{} })
	p := &presence{synced: s.synced, changed: make(chan struct{})}
	s.changed = func(_ types.NamespacedName, _, _ struct{}, there bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.there = there
		close(p.changed)
		p.changed = make(chan struct{})
	}
	go c.follow(ctx, f, s, nil)
	return p
}

// now says whether it is there; the channel is closed when it has changed, come or gone.
func (p *presence) now() (there bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.there, p.changed
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// followCustom follows a kind while there is a definition of it. Without one the store is
// empty, and is all that there is.
func (c *Cluster) followCustom(ctx context.Context, k kind, to *store[known]) {
	definition := c.presence(ctx, feedOf("the CustomResourceDefinition "+k.definition, c.metadata.Resource(definitions), one(k.definition)))
	if !wait(ctx, definition.synced) {
		return
	}
	tried := "reading objects of " + k.definition
	defer c.trouble.forget(tried)
	delay := again()
	for ctx.Err() == nil {
		there, changed := definition.now()
		if !there {
			c.trouble.forget(tried)
			to.Replace(nil, "")
			wait(ctx, changed)
			continue
		}
		with, cancel := context.WithCancel(ctx)
		go func() { // until there is none
			for there && wait(with, changed) {
				there, changed = definition.now()
			}
			cancel()
		}()
		err := c.follow(with, c.untroubled(k.feed(c), tried), to, apierrors.IsNotFound)
		gone := with.Err() != nil
		cancel()
		if gone || !apierrors.IsNotFound(err) {
			continue
		}
		// It was made just now, or has not our version. Its next change may say more.
		to.Replace(nil, "")
		d := delay()
		if d > time.Second { // not the first time
			c.trouble.note(tried, fmt.Errorf("the CustomResourceDefinition %s is there, but serves no version %s", k.definition, customVersion))
		}
		sleep(ctx, d)
	}
}

// untroubled ends a trouble when the feed has a list: what it says of itself has another
// name.
func (c *Cluster) untroubled(f feed, tried string) feed {
	list := f.list
	f.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		if err == nil {
			c.trouble.note(tried, nil)
		}
		return out, err
	}
	return f
}
