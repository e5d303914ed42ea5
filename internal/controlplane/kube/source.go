package kube

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/mesh"
)

// A Problem says why an object is ignored, in whole or in part.
type Problem struct {
	Object  string // kind namespace/name
	Message string // the field, what is wrong, and what would be right
}

func (p Problem) String() string { return p.Object + ": " + p.Message }

// SourceOptions of a source. The zero value of a field means its default.
type SourceOptions struct {
	Config mesh.Config
	Quiet  time.Duration // without a change before the mesh is published (debounce); default 20ms
	AtMost time.Duration // from the first change until it is published; default 200ms
}

// A Source publishes the mesh of a cluster. An invalid object is a [Problem]; its last valid
// version stays in use.
type Source struct {
	mesh.Feed[Problem]
	cluster *Cluster
	o       SourceOptions
	synced  chan struct{}
	done    chan struct{}
	dirty   chan struct{} // has one if something changed

	mu      sync.Mutex
	builder *mesh.Builder
	invalid map[mesh.Key]string
}

// Source watches the cluster until ctx ends. Until [Source.Synced] the mesh is empty.
func (c *Cluster) Source(ctx context.Context, o SourceOptions) *Source {
	o.Quiet, o.AtMost = cmp.Or(o.Quiet, 20*time.Millisecond), cmp.Or(o.AtMost, 200*time.Millisecond)
	s := &Source{
		cluster: c, o: o, synced: make(chan struct{}), done: make(chan struct{}), dirty: make(chan struct{}, 1),
		builder: mesh.NewBuilder(o.Config), invalid: map[mesh.Key]string{},
	}
	s.Publish(s.builder.Mesh(), nil)
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return s
}

// Synced is closed once the mesh has all objects of the first lists.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Done is closed when all watches have ended, after the end of the context.
func (s *Source) Done() <-chan struct{} { return s.done }

func (s *Source) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	var stores []*store[known]
	for _, k := range kinds {
		to := s.storeOf(k)
		stores = append(stores, to)
		running.Go(func() {
			if k.definition == "" {
				s.cluster.follow(ctx, k.feed(s.cluster), to, nil)
			} else {
				s.cluster.followCustom(ctx, k, to)
			}
		})
	}
	for _, to := range stores {
		if !wait(ctx, to.synced) {
			return
		}
	}
	s.publish()
	close(s.synced)
	for s.settle(ctx) {
		s.publish()
	}
}

// known is what is kept of an object.
type known struct {
	part    mesh.Part // of its last valid version; nil: it is not part of the mesh
	invalid string    // why its current version is invalid
}

// storeOf returns a store that updates the builder.
func (s *Source) storeOf(k kind) *store[known] {
	to := newStore(func(old known, o metav1.Object) known {
		part, err := k.part(o)
		switch {
		case err != nil:
			return known{old.part, err.Error()}
		case reflect.DeepEqual(old.part, part): // most changes of pods do not matter to a mesh
			return known{part: old.part}
		}
		return known{part: part}
	})
	to.changed = func(n types.NamespacedName, before, now known, _ bool) {
		if before != now {
			s.put(mesh.Key{Kind: k.name, Namespace: n.Namespace, Name: n.Name}, before, now)
		}
	}
	return to
}

func (s *Source) put(key mesh.Key, before, now known) {
	s.mu.Lock()
	switch {
	case before.part == now.part:
	case now.part == nil:
		s.builder.Delete(key)
	default:
		s.builder.Set(now.part)
	}
	delete(s.invalid, key)
	if now.invalid != "" {
		s.invalid[key] = now.invalid
	}
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// settle waits for a change, and then until there was none for Quiet, or for AtMost. It
// returns false if ctx ended.
func (s *Source) settle(ctx context.Context) bool {
	if !wait(ctx, s.dirty) {
		return false
	}
	deadline := time.After(s.o.AtMost)
	for {
		select {
		case <-s.dirty:
		case <-time.After(s.o.Quiet):
			return true
		case <-deadline:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (s *Source) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := make([]Problem, 0, len(s.invalid))
	for _, key := range slices.SortedFunc(maps.Keys(s.invalid), compareKeys) {
		problems = append(problems, Problem{key.String(), s.invalid[key]})
	}
	m := s.builder.Mesh() // before its conflicts
	for _, c := range s.builder.Conflicts() {
		problems = append(problems, Problem{c.Object.String(), strings.TrimPrefix(c.Field+": "+c.Message, ": ")})
	}
	s.Publish(m, problems)
}

func compareKeys(a, b mesh.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
