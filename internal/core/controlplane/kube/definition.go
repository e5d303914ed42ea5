package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/latest"
)

// A presence is the information whether an object exists.
type presence struct {
	synced <-chan struct{}
	exists latest.Value[bool]
}

// presence watches a feed that contains at most one object, until ctx ends.
func (c *Cluster) presence(ctx context.Context, f feed) *presence {
	s := newStore(func(struct{}, metav1.Object) struct{} { return struct{}{} })
	p := &presence{synced: s.synced}
	s.changed = func(_ types.NamespacedName, _, _ struct{}, exists bool) { p.exists.Set(exists) }
	go c.follow(ctx, f, s, nil)
	return p
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// followCustom watches the objects of a custom kind while its definition exists. Without a definition the
// store is empty and counts as synced.
func (c *Cluster) followCustom(ctx context.Context, k kind, to *store[known]) {
	definition := c.presence(ctx, k.read(feedOf("the CustomResourceDefinition "+k.definition, c.metadata.Resource(definitions), one(k.definition))))
	if !latest.Wait(ctx, definition.synced) {
		return
	}
	tried := "reading objects of " + k.definition
	defer c.trouble.forget(tried)
	delay := retryDelay()
	for ctx.Err() == nil {
		exists, changed := definition.exists.Get()
		if !exists {
			c.trouble.forget(tried)
			to.Replace(nil, "")
			latest.Wait(ctx, changed)
			continue
		}
		with, cancel := context.WithCancel(ctx)
		go func() { // ends the context of the watch when the definition is deleted
			for exists && latest.Wait(with, changed) {
				exists, changed = definition.exists.Get()
			}
			cancel()
		}()
		err := c.follow(with, c.clearing(k.read(k.feed(c)), tried), to, apierrors.IsNotFound)
		deleted := with.Err() != nil
		cancel()
		if deleted || !apierrors.IsNotFound(err) {
			continue
		}
		// The definition is not served yet, or does not have our version.
		to.Replace(nil, "")
		d := delay()
		if d > time.Second && k.patient == nil { // it has failed repeatedly
			c.trouble.note(tried, fmt.Errorf("the CustomResourceDefinition %s is there, but serves no version %s", k.definition, k.version))
		}
		latest.Wait(ctx, time.After(d))
	}
}

// clearing returns a variant of a feed that, once a list succeeds, removes the failure recorded under the
// name tried. follow does not remove it, because it records failures of the feed under another name.
func (c *Cluster) clearing(f feed, tried string) feed {
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
