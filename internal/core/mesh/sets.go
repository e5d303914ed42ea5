package mesh

import "reflect"

// A name of a Kubernetes object, whose kind is that of the map.
type name struct{ namespace, name string }

type set[K comparable] map[K]struct{}

func (s set[K]) add(k K) { s[k] = struct{}{} }

// A multimap has a set for each key. Empty sets are not kept.
type multimap[K, V comparable] map[K]set[V]

// set adds a value, or removes it.
func (m multimap[K, V]) set(k K, v V, present bool) {
	s, ok := m[k]
	switch {
	case !present:
		delete(s, v)
		if len(s) == 0 {
			delete(m, k)
		}
	case !ok:
		m[k] = set[V]{v: {}}
	default:
		s.add(v)
	}
}

// sameMap reports whether a and b are one map.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// A label of something in a namespace.
type label struct{ namespace, key, value string }

// selects reports whether a selector matches labels. An empty one matches nothing: the
// endpoints of a Service without a selector are in its slices.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return len(selector) > 0
}

// selectorKey is the label by which a selector is indexed: its first pair. All that the
// selector matches has it.
func selectorKey(namespace string, selector map[string]string) label {
	var least label
	for k, v := range selector {
		if least.key == "" || k < least.key {
			least = label{namespace, k, v}
		}
	}
	return least
}
