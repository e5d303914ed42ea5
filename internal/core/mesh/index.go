package mesh

import (
	"hash/maphash"
	"iter"
	"maps"
)

// shards bounds the cost of a change, which copies one shard: with 10,000 services it has 40
// entries.
const shards = 256

var seed = maphash.MakeSeed()

// An index is a persistent map: an [edit] makes a new one, which shares the unchanged
// shards.
type index[K comparable, V any] struct {
	shard [shards]map[K]V
}

func shardOf[K comparable](k K) int { return int(maphash.Comparable(seed, k) % shards) }

// get returns the zero V for a missing key, also from a nil index.
func (x *index[K, V]) get(k K) V {
	if x == nil {
		var none V
		return none
	}
	return x.shard[shardOf(k)][k]
}

func (x *index[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if x == nil {
			return
		}
		for _, s := range x.shard {
			for k, v := range s {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

func (x *index[K, V]) len() int {
	n := 0
	if x != nil {
		for _, s := range x.shard {
			n += len(s)
		}
	}
	return n
}

// An edit of an index. Each shard is copied when it is first written.
type edit[K comparable, V any] struct {
	old, new *index[K, V] // new is nil until something is written
	own      [shards]bool
}

func (e *edit[K, V]) shard(k K) *map[K]V {
	if e.new == nil {
		e.new = new(index[K, V])
		if e.old != nil {
			*e.new = *e.old
		}
	}
	i := shardOf(k)
	if s := &e.new.shard[i]; !e.own[i] {
		e.own[i] = true
		if *s = maps.Clone(*s); *s == nil {
			*s = map[K]V{}
		}
	}
	return &e.new.shard[i]
}

func (e *edit[K, V]) set(k K, v V) { (*e.shard(k))[k] = v }
func (e *edit[K, V]) delete(k K)   { delete(*e.shard(k), k) }

// done returns the old index if nothing was written.
func (e *edit[K, V]) done() *index[K, V] {
	if e.new == nil {
		return e.old
	}
	return e.new
}

// diff calls f for each key whose values differ, in no order.
func diff[K, V comparable](old, new *index[K, V], f func(k K, old, new V)) {
	if old == new {
		return
	}
	if old == nil {
		old = &index[K, V]{}
	}
	if new == nil {
		new = &index[K, V]{}
	}
	var none V
	for i := range shards {
		was, is := old.shard[i], new.shard[i]
		if sameMap(was, is) {
			continue
		}
		for k, v := range is {
			if w := was[k]; w != v {
				f(k, w, v)
			}
		}
		for k, v := range was {
			if _, ok := is[k]; !ok {
				f(k, v, none)
			}
		}
	}
}
