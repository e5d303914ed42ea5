package build

import "outrider.dev/internal/core/mesh"

// A set contains each element once. Its zero value is empty.
type set[K comparable] map[K]struct{}

func (s *set[K]) add(k K) {
	if *s == nil {
		*s = set[K]{}
	}
	(*s)[k] = struct{}{}
}

func (s *set[K]) addAll(other set[K]) {
	for k := range other {
		s.add(k)
	}
}

// take empties s and returns its content. s gets a new map, because maps do not shrink and the first load
// makes them large.
func (s *set[K]) take() set[K] {
	out := *s
	*s = nil
	return out
}

// smallest returns the smallest key of a set, which does not depend on the order of arrival; the zero key for
// an empty set.
func smallest(s set[mesh.Key]) mesh.Key {
	var out mesh.Key
	for k := range s {
		if out == (mesh.Key{}) || k.Compare(out) < 0 {
			out = k
		}
	}
	return out
}

// A multimap contains a set of values for each key. Empty sets are removed. Its zero value is empty.
type multimap[K, V comparable] map[K]set[V]

// set adds a value, or removes it.
func (m *multimap[K, V]) set(k K, v V, present bool) {
	s := (*m)[k]
	if present {
		if *m == nil {
			*m = multimap[K, V]{}
		}
		s.add(v)
		(*m)[k] = s
		return
	}
	if delete(s, v); len(s) == 0 {
		delete(*m, k)
	}
}

// A label is a label of an object, with the object's namespace.
type label struct{ namespace, key, value string }

// selectorKey returns the label by which a selector is indexed: the selector's first pair by key. Every
// object that the selector matches has this label.
func selectorKey(namespace string, selector map[string]string) label {
	var least label
	for k, v := range selector {
		if least.key == "" || k < least.key {
			least = label{namespace, k, v}
		}
	}
	return least
}
