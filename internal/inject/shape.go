package inject

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// A shape is how a type of the API is written as JSON.
type shape struct {
	text     bool // it writes itself, as one value
	fields   []field
	identity int // the field that tells elements of a list apart; -1: there is none
}

// A field of a struct, by its tag. One without a name is embedded.
type field struct {
	index int
	name  string
	omit  func(reflect.Value) bool // whether it is left out; nil: it never is
}

func (f field) written(v reflect.Value) bool { return f.omit == nil || !f.omit(v) }

// identities are the fields that tell elements of a pod's lists apart, the first that a
// type has (patchMergeKey of k8s.io/api/core/v1).
var identities = []string{"mountPath", "containerPort", "name"}

var shapes sync.Map // of reflect.Type

func shapeOf(t reflect.Type) *shape {
	if s, known := shapes.Load(t); known {
		return s.(*shape)
	}
	s := makeShape(t)
	shapes.Store(t, s)
	return s
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func makeShape(t reflect.Type) *shape {
	s := &shape{identity: -1}
	if t.Kind() == reflect.Pointer {
		return s
	}
	s.text = t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
	if t.Kind() != reflect.Struct || s.text {
		return s
	}
	rank := len(identities)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		own := field{index: i, name: name}
		switch {
		case name == "" && f.Type.Kind() != reflect.Struct:
			own.name = f.Name
		case strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero"):
			own.omit = empty
		}
		s.fields = append(s.fields, own)
		if r := slices.Index(identities, name); r >= 0 && r < rank {
			rank, s.identity = r, i
		}
	}
	return s
}

// empty is what omitempty leaves out, and a struct without anything, which some write as
// {} and others not at all: an add is right for both.
func empty(v reflect.Value) bool {
	if kind := v.Kind(); kind == reflect.Map || kind == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}

// identified says that each element of a list has an identity.
func identified(list reflect.Value) bool {
	return list.Len() > 0 && shapeOf(list.Type().Elem()).identity >= 0
}

// same says whether two elements of a list are one, before and after.
func same(a, b reflect.Value) bool {
	i := shapeOf(a.Type()).identity
	return a.Field(i).Equal(b.Field(i))
}
