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

// A Problem is why an object is not used as it is.
type Problem struct {
	Object  string // kind namespace/name
	Message string // the field, what is wrong, and what would be right
}

func (p Problem) String() string { return p.Object + ": " + p.Message }

// SourceOptions of a source. The zero value of a field means its default.
type SourceOptions struct {
	Config mesh.Config
	Quiet  time.Duration // without a change before changes are told; default 20ms
	AtMost time.Duration // that changes wait for quiet; default 200ms
}

// A Source has the mesh of a cluster as it is now. An object that is wrong changes
// nothing: what it said before stays, and it is a [Problem].
type Source struct {
	cluster *Cluster
	o       SourceOptions
	synced  chan struct{}
	done    chan struct{}
	dirty   chan struct{} // has one if something changed

	mu       sync.Mutex
	builder  *mesh.Builder
	wrong    map[mesh.Key]string
	mesh     latest[*mesh.Mesh]
	problems latest[[]Problem]
}

// latest is a value, and a channel that is closed when there is a newer one.
type latest[T any] struct {
	value T
	newer chan struct{}
}

func (l *latest[T]) set(v T) {
	close(l.newer)
	l.value, l.newer = v, make(chan struct{})
}

// Source follows the cluster until ctx ends. Until [Source.Synced] the mesh is empty.
func (c *Cluster) Source(ctx context.Context, o SourceOptions) *Source {
	o.Quiet, o.AtMost = cmp.Or(o.Quiet, 20*time.Millisecond), cmp.Or(o.AtMost, 200*time.Millisecond)
	s := &Source{
		cluster: c, o: o, synced: make(chan struct{}), done: make(chan struct{}), dirty: make(chan struct{}, 1),
		builder: mesh.NewBuilder(o.Config), wrong: map[mesh.Key]string{},
	}
	s.mesh = latest[*mesh.Mesh]{s.builder.Mesh(), make(chan struct{})}
	s.problems.newer = make(chan struct{})
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return s
}

// Synced is closed once the mesh has all that the cluster had at the start.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Done is closed when nothing is followed any more: after the end of the context.
func (s *Source) Done() <-chan struct{} { return s.done }

// Current returns the newest mesh, and a channel that is closed when there is a newer one.
func (s *Source) Current() (*mesh.Mesh, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mesh.value, s.mesh.newer
}

// Problems returns what is wrong with objects now, and a channel that is closed when that
// changes.
func (s *Source) Problems() ([]Problem, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.value, s.problems.newer
}

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
	part  mesh.Part // nil: it says nothing
	wrong string
}

// storeOf returns a store that tells the builder.
func (s *Source) storeOf(k kind) *store[known] {
	to := newStore(func(old known, o metav1.Object) known {
		part, err := k.part(o)
		switch {
		case err != nil:
			return known{old.part, err.Error()}
		case reflect.DeepEqual(old.part, part): // most changes of pods are none to a mesh
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
	delete(s.wrong, key)
	if now.wrong != "" {
		s.wrong[key] = now.wrong
	}
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// settle waits for a change, and then for quiet, or until patience ends; false: ctx did.
func (s *Source) settle(ctx context.Context) bool {
	if !wait(ctx, s.dirty) {
		return false
	}
	patience := time.After(s.o.AtMost)
	for {
		select {
		case <-s.dirty:
		case <-time.After(s.o.Quiet):
			return true
		case <-patience:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

func (s *Source) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := make([]Problem, 0, len(s.wrong))
	for _, key := range slices.SortedFunc(maps.Keys(s.wrong), compareKeys) {
		problems = append(problems, Problem{key.String(), s.wrong[key]})
	}
	now := s.builder.Mesh()
	for _, c := range s.builder.Conflicts() {
		problems = append(problems, Problem{c.Object.String(), strings.TrimPrefix(c.Field+": "+c.Message, ": ")})
	}
	if !slices.Equal(problems, s.problems.value) {
		s.problems.set(problems)
	}
	if now != s.mesh.value {
		s.mesh.set(now)
	}
}

func compareKeys(a, b mesh.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
