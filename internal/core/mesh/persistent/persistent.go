// Package persistent has maps of which a changed version shares most with the version before: an edit
// copies only the shards that it writes. So a snapshot of a large map costs as much as its changes,
// and two versions are compared by what they do not share.
package persistent

import (
	"hash/maphash"
	"iter"
	"maps"
	"reflect"
)

// shards bounds the cost of a change, which copies one shard: with 10,000 keys it has 40 entries.
const shards = 256

var seed = maphash.MakeSeed()

// A Map does not change. A nil Map is empty. The zero V stands for a key that is not there.
type Map[K, V comparable] struct {
	shard [shards]map[K]V
}

func shardOf[K comparable](k K) int { return int(maphash.Comparable(seed, k) % shards) }

// Get returns the zero V for a key that is not there.
func (m *Map[K, V]) Get(k K) V {
	if m == nil {
		var none V
		return none
	}
	return m.shard[shardOf(k)][k]
}

// All returns the entries in no order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m == nil {
			return
		}
		for _, s := range m.shard {
			for k, v := range s {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	n := 0
	if m != nil {
		for _, s := range m.shard {
			n += len(s)
		}
	}
	return n
}

// Edit begins a new version of m.
func (m *Map[K, V]) Edit() *Edit[K, V] { return &Edit[K, V]{old: m} }

// An Edit makes a new version of a map. Each shard is copied when it is first written.
type Edit[K, V comparable] struct {
	old, new *Map[K, V] // new is nil until something is written
	own      [shards]bool
}

// Old returns the value of the version before.
func (e *Edit[K, V]) Old(k K) V { return e.old.Get(k) }

// Put sets the value of a key; the zero V removes the key. A value that the key has already is no change.
func (e *Edit[K, V]) Put(k K, v V) {
	if e.Done().Get(k) == v {
		return
	}
	var none V
	if s := e.writable(shardOf(k)); v == none {
		delete(s, k)
	} else {
		s[k] = v
	}
}

func (e *Edit[K, V]) writable(i int) map[K]V {
	if e.new == nil {
		e.new = new(Map[K, V])
		if e.old != nil {
			*e.new = *e.old
		}
	}
	if s := &e.new.shard[i]; !e.own[i] {
		e.own[i] = true
		if *s = maps.Clone(*s); *s == nil {
			*s = map[K]V{}
		}
	}
	return e.new.shard[i]
}

// Done returns the new version: the old one if nothing was written.
func (e *Edit[K, V]) Done() *Map[K, V] {
	if e.new == nil {
		return e.old
	}
	return e.new
}

// Diff calls f for each key whose values differ, in no order.
func Diff[K, V comparable](old, new *Map[K, V], f func(k K, old, new V)) {
	if old == new {
		return
	}
	if old == nil {
		old = &Map[K, V]{}
	}
	if new == nil {
		new = &Map[K, V]{}
	}
	var none V
	for i := range shards {
		was, is := old.shard[i], new.shard[i]
		if reflect.ValueOf(was).Pointer() == reflect.ValueOf(is).Pointer() {
			continue // one map
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
