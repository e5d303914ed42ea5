package inject

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// A shape is how a type of the API is written as JSON.
type shape struct {
	kind     reflect.Kind
	text     bool    // it writes itself, as one value
	elem     *shape  // of a pointer, a list or a map
	fields   []field // of a struct
	identity int     // the field that tells elements of a list apart; -1: there is none
}

// A field of a struct, by its tag. One without a name is embedded.
type field struct {
	*shape
	index int
	name  string
	omit  bool // it is left out if it is empty
}

func (f *field) written(v reflect.Value) bool { return !f.omit || !f.empty(v) }

// identities are the fields that tell elements of a pod's lists apart, the first that a
// type has (patchMergeKey of k8s.io/api/core/v1).
var identities = []string{"mountPath", "containerPort", "name"}

// podShape is made once: to look at the tags costs more than to compare two pods.
var podShape = sync.OnceValue(func() *shape { return shapes{}.of(reflect.TypeFor[corev1.Pod]()) })

// shapes are those made so far: a type may have itself in it.
type shapes map[reflect.Type]*shape

var marshaler = reflect.TypeFor[json.Marshaler]()

func (all shapes) of(t reflect.Type) *shape {
	if s, made := all[t]; made {
		return s
	}
	s := &shape{kind: t.Kind(), identity: -1}
	all[t] = s
	switch s.kind {
	case reflect.Pointer:
		s.elem = all.of(t.Elem())
		return s
	case reflect.Slice, reflect.Map:
		s.elem = all.of(t.Elem())
	}
	s.text = t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
	if s.kind == reflect.Struct && !s.text {
		all.addFields(s, t)
	}
	return s
}

func (all shapes) addFields(s *shape, t reflect.Type) {
	rank := len(identities)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		own := field{shape: all.of(f.Type), index: i, name: name}
		switch {
		case name == "" && f.Type.Kind() != reflect.Struct:
			own.name = f.Name
		case strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero"):
			own.omit = true
		}
		s.fields = append(s.fields, own)
		if r := slices.Index(identities, name); r >= 0 && r < rank {
			rank, s.identity = r, i
		}
	}
}

// empty is what omitempty leaves out, and a struct without anything, which some write as
// {} and others not at all: an add is right for both.
func (s *shape) empty(v reflect.Value) bool {
	switch s.kind {
	case reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	}
	return v.IsZero()
}

// identified says that each element of a list has an identity.
func (s *shape) identified(list reflect.Value) bool { return list.Len() > 0 && s.elem.identity >= 0 }

// same says whether two elements of a list are one, before and after.
func (s *shape) same(a, b reflect.Value) bool { return a.Field(s.identity).Equal(b.Field(s.identity)) }
