package kube

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/latest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// A Source publishes the mesh of a cluster. If an object is invalid, that is reported as a problem, and its
// last valid version stays in use.
type Source struct {
	mesh.Feed
	cluster *Cluster
	synced  chan struct{}
	dirty   chan struct{} // contains a value if something has changed

	mu      sync.Mutex
	builder *build.Builder
	invalid map[mesh.Key]string
	kept    map[mesh.Key]*mesh.WorkloadSpec // pods that were ready less than keptFor ago
	unread  map[string]bool                 // definitions of ignored kinds that outriderd may not read
}

// keptFor is the time for which a pod that is no longer ready may still get traffic if no other endpoint can.
// It is long enough for a restarted kubelet, which reports containers as not ready until it has probed them
// again. It is shorter than a readiness probe with default values needs to notice that an application is no
// longer ready.
const keptFor = 5 * time.Second

// Source watches the cluster until ctx ends. It does not read the [OptionalKinds] in skip. The mesh is empty
// until [Source.Synced] is closed.
func (c *Cluster) Source(ctx context.Context, config mesh.Config, skip ...string) *Source {
	s := &Source{
		cluster: c, synced: make(chan struct{}), dirty: make(chan struct{}, 1),
		builder: build.New(config), invalid: map[mesh.Key]string{},
		kept: map[mesh.Key]*mesh.WorkloadSpec{}, unread: map[string]bool{},
	}
	s.Publish(s.builder.Mesh(), nil)
	go s.run(ctx, skip)
	return s
}

// Synced returns a channel that is closed once the mesh contains all objects in the first lists.
func (s *Source) Synced() <-chan struct{} { return s.synced }

func (s *Source) run(ctx context.Context, skip []string) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, k := range s.ignoredKinds() { // the mesh does not wait for these
		if slices.Contains(skip, skipIgnored) {
			break
		}
		running.Go(func() { s.cluster.followCustom(ctx, k, s.storeOf(k)) })
	}
	var stores []*store[known]
	for _, k := range kinds {
		if k.skipped(skip) {
			continue
		}
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
		if !latest.Wait(ctx, to.synced) {
			return
		}
	}
	s.publish()
	close(s.synced)
	for mesh.Settle(ctx, s.dirty) {
		s.publish()
	}
}

// known is the state that a store keeps of an object.
type known struct {
	part    mesh.Part // from the last valid version; nil: the object is not part of the mesh
	invalid string    // reason why the current version is invalid; empty: it is valid
}

// storeOf returns a store whose changes are passed to the builder.
func (s *Source) storeOf(k kind) *store[known] {
	to := newStore(func(old known, o metav1.Object) known {
		part, err := k.part(o)
		if pod, ok := part.(*mesh.WorkloadSpec); ok && pod.Ready {
			// The pod remains marked as kept until its EndpointSlices are updated, which is a little later.
			was, _ := old.part.(*mesh.WorkloadSpec)
			pod.Kept = was != nil && was.Kept
		}
		switch {
		case err != nil && standsIn(old.part):
			return known{part, err.Error()}
		case err != nil:
			return known{old.part, err.Error()}
		case reflect.DeepEqual(old.part, part): // most changes of pods do not concern the mesh
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

// standsIn reports whether p is only a substitute for a valid version of an object. An invalid policy that
// should forbid something is replaced by a part that forbids more.
func standsIn(p mesh.Part) bool {
	policy, ok := p.(*mesh.AuthorizationSpec)
	return p == nil || ok && policy.Closed
}

func (s *Source) put(key mesh.Key, before, now known) {
	s.mu.Lock()
	delete(s.kept, key)
	if pod, ok := now.part.(*mesh.WorkloadSpec); ok && pod.Kept {
		s.kept[key] = pod
		time.AfterFunc(keptFor, func() { s.keepNoLonger(key, pod) })
	}
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
	s.changed()
}

// keepNoLonger clears Kept of a pod, which ends the traffic to the pod, unless the pod has changed since Kept
// was set.
func (s *Source) keepNoLonger(key mesh.Key, pod *mesh.WorkloadSpec) {
	s.mu.Lock()
	same := s.kept[key] == pod
	if same {
		delete(s.kept, key)
		ended := *pod
		ended.Kept = false
		s.builder.Set(&ended)
	}
	s.mu.Unlock()
	if same {
		s.changed()
	}
}

func (s *Source) changed() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *Source) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := make([]string, 0, len(s.invalid))
	for _, key := range slices.SortedFunc(maps.Keys(s.invalid), mesh.Key.Compare) {
		problems = append(problems, key.String()+": "+s.invalid[key])
	}
	m := s.builder.Mesh() // must precede the call of Conflicts
	for _, c := range s.builder.Conflicts() {
		problems = append(problems, c.Severity+c.Object.String()+": "+strings.TrimPrefix(c.Field+": "+c.Message, ": "))
	}
	if len(s.unread) > 0 {
		problems = append(problems, s.unreadProblem())
	}
	s.Publish(m, problems)
}
