// Package persistent implements maps whose versions share most of their data: a write copies only the shard
// that contains the key. So the cost of a new version of a large map depends on the number of its changes,
// and only the shards that two versions do not share must be compared.
package persistent

import (
	"hash/maphash"
	"iter"
	"maps"
	"reflect"
)

// shards is the number of shards of a map. Many small ones limit the cost of a change, which copies one
// shard: with 10,000 keys a shard has 40 entries.
const shards = 256

var seed = maphash.MakeSeed()

// A Map is immutable. A nil Map is empty. The zero value of V stands for a missing key.
type Map[K, V comparable] struct {
	shard [shards]map[K]V
}

func shardOf[K comparable](k K) int { return int(maphash.Comparable(seed, k) % shards) }

// Get returns the value of a key, and the zero V for a missing key.
func (m *Map[K, V]) Get(k K) V {
	if m == nil {
		var none V
		return none
	}
	return m.shard[shardOf(k)][k]
}

// All returns the entries in undefined order.
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

// A Table makes versions of a map. The first write to a shard after a version was made copies that shard. The
// zero Table is empty.
type Table[K, V comparable] struct {
	now     *Map[K, V]
	written bool         // now has changes that no version contains
	own     [shards]bool // shards that were copied after the last version
}

// Get returns the value that was last put.
func (t *Table[K, V]) Get(k K) V { return t.now.Get(k) }

// Put sets the value of a key; the zero V removes the key. Putting the same value again changes nothing.
func (t *Table[K, V]) Put(k K, v V) {
	if t.now.Get(k) == v {
		return
	}
	var none V
	if s := t.writable(shardOf(k)); v == none {
		delete(s, k)
	} else {
		s[k] = v
	}
}

func (t *Table[K, V]) writable(i int) map[K]V {
	if !t.written {
		next := new(Map[K, V])
		if t.now != nil {
			*next = *t.now
		}
		t.now, t.written = next, true
	}
	s := &t.now.shard[i]
	if !t.own[i] {
		t.own[i] = true
		if *s = maps.Clone(*s); *s == nil {
			*s = map[K]V{}
		}
	}
	return *s
}

// Version returns the current content as a version, which later changes do not affect. If nothing has
// changed, it returns the last version.
func (t *Table[K, V]) Version() *Map[K, V] {
	t.written, t.own = false, [shards]bool{}
	return t.now
}

// Diff calls f for each key whose values differ, in undefined order. A missing key has the zero V.
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
			continue // the two maps share this shard
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
