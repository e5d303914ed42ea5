package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
)

// ignoredVersions are the possible API versions of ignored kinds; the first that is served is read. The
// fields that matter are the same in all of them.
var ignoredVersions = []string{"v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}

// ignoredKinds returns the kinds of other meshes that are reported as ignored. The mesh counts as complete
// without them, because the installed role may be older and not allow outriderd to read them.
func (s *Source) ignoredKinds() []kind {
	var out []kind
	for definition, name := range foreign.Resources() { // any order: each is watched separately
		if slices.ContainsFunc(kinds, func(k kind) bool { return k.definition == definition }) {
			continue // outriderd reads this kind anyway, and reports its ignored parts
		}
		resource, group, _ := strings.Cut(definition, ".")
		out = append(out, kind{
			name: name, definition: definition,
			patient: func(f feed) feed { return s.patient(definition, f) },
			feed:    func(c *Cluster) feed { return c.newestOf(group, resource) },
			part: func(o metav1.Object) (mesh.Part, error) {
				u, ok := o.(*unstructured.Unstructured)
				if !ok {
					return nil, errNoObject
				}
				return some(foreign.Read(u.Object), nil)
			},
		})
	}
	return out
}

// newestOf returns a feed of the first of the ignoredVersions that is served.
func (c *Cluster) newestOf(group, resource string) feed {
	var served atomic.Int64 // index into ignoredVersions
	of := func(i int64) feed {
		return feedOf(resource, c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: ignoredVersions[i], Resource: resource}), nil)
	}
	return feed{
		what: resource,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			var first error
			for i := range ignoredVersions {
				out, err := of(int64(i)).list(ctx, o)
				if !apierrors.IsNotFound(err) {
					served.Store(int64(i))
					return out, err
				}
				if first == nil {
					first = err
				}
			}
			return nil, first
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return of(served.Load()).watch(ctx, o)
		},
	}
}

// forbiddenWait is the pause between attempts to read a forbidden kind. It need not be short, because it ends
// only when an administrator changes the role.
const forbiddenWait = time.Minute

// patient returns a variant of a feed that waits while it is forbidden, and reports that as a problem of the
// mesh.
func (s *Source) patient(definition string, f feed) feed {
	f.quiet = true
	list := f.list
	f.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		for {
			out, err := list(ctx, o)
			s.markUnread(definition, apierrors.IsForbidden(err))
			if !apierrors.IsForbidden(err) || !latest.Wait(ctx, time.After(forbiddenWait)) {
				return out, err
			}
		}
	}
	return f
}

func (s *Source) markUnread(definition string, unread bool) {
	s.mu.Lock()
	differs := s.unread[definition] != unread
	if unread {
		s.unread[definition] = true
	} else {
		delete(s.unread, definition)
	}
	s.mu.Unlock()
	if differs {
		s.changed()
	}
}

func (s *Source) unreadProblem() string {
	return fmt.Sprintf("%snot known whether objects of other meshes are ignored, because outriderd may not read %s; the chart has the roles",
		contract.WarningPrefix, strings.Join(slices.Sorted(maps.Keys(s.unread)), ", "))
}
