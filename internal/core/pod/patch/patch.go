// Package patch computes a JSON patch (RFC 6902) from two versions of a pod. The patch preserves everything that
// does not differ, including fields of a newer version of Kubernetes, which our types do not have.
package patch

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// An Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`             // add, remove or move
	From  string `json:"from,omitempty"` // for move
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Diff returns a patch that turns the first pod into the second. Elements of lists (containers, volumes and
// others) are identified by name. An element that is in both lists is patched, and moved if its position
// differs, so that it keeps fields of a newer version of Kubernetes, which our types do not have. A library that
// compares lists by position would write such an element anew, without these fields.
//
// Diff compares the pods in memory, by the fields that their JSON contains. Only what differs is converted to
// JSON.
func Diff(before, after *corev1.Pod) []Operation {
	var p patch
	old := *before
	p.moveContainers(&old.Spec, &after.Spec)
	p.object("", reflect.ValueOf(&old).Elem(), reflect.ValueOf(after).Elem())
	return p
}

type patch []Operation

func (p *patch) add(path string, value any) {
	*p = append(*p, Operation{Op: "add", Path: path, Value: value})
}

func (p *patch) remove(path string) { *p = append(*p, Operation{Op: "remove", Path: path}) }

func (p *patch) move(from, path string) {
	*p = append(*p, Operation{Op: "move", From: from, Path: path})
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func at(list string, i int) string { return list + "/" + strconv.Itoa(i) }

// object compares two objects, which are structs or maps. The operation "add" is also used to replace a field.
func (p *patch) object(path string, old, new reflect.Value) {
	var fields []field
	if old.Kind() == reflect.Map {
		fields = keysOfBoth(old, new)
	} else {
		fields = jsonFields(old.Type())
	}
	for _, f := range fields {
		if f.of(old).IsValid() && !f.of(new).IsValid() {
			p.remove(path + "/" + escaper.Replace(f.name))
		}
	}
	for _, f := range fields {
		switch was, is := f.of(old), f.of(new); {
		case !is.IsValid():
		case !was.IsValid():
			p.add(path+"/"+escaper.Replace(f.name), is.Interface())
		default:
			p.value(path, f.name, was, is)
		}
	}
}

// value compares a field that both objects have.
func (p *patch) value(path, name string, old, new reflect.Value) {
	field := path + "/" + escaper.Replace(name)
	if old.Kind() == reflect.Pointer && !old.IsNil() && !new.IsNil() {
		old, new = old.Elem(), new.Elem()
	}
	switch t, key := old.Type(), identity(old, new); {
	case t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler): // for example a quantity, which is one string in JSON
		if !reflect.DeepEqual(old.Interface(), new.Interface()) && !sameJSON(old, new) {
			p.add(field, new.Interface())
		}
	// Resources are compared as a whole if they are empty, because the API server's object may not have the
	// field.
	case old.Kind() == reflect.Struct && (name != "resources" || !old.IsZero()), old.Kind() == reflect.Map:
		p.object(field, old, new)
	case key != "":
		p.list(field, key, old, new)
	case !reflect.DeepEqual(old.Interface(), new.Interface()):
		p.add(field, new.Interface())
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func sameJSON(a, b reflect.Value) bool {
	x, errX := json.Marshal(a.Interface())
	y, errY := json.Marshal(b.Interface())
	return errX == nil && errY == nil && string(x) == string(y)
}

// A field is a struct field with a JSON name, or a key of a map.
type field struct {
	name  string
	key   reflect.Value
	index []int
	empty bool // it has the option omitempty
}

// of returns the value of the field in an object; the zero value if the object's JSON does not contain the field.
func (f field) of(object reflect.Value) reflect.Value {
	if f.key.IsValid() {
		return object.MapIndex(f.key)
	}
	v := object.FieldByIndex(f.index)
	if !f.empty {
		return v
	}
	switch v.Kind() {
	case reflect.Struct: // a struct is never left out
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return reflect.Value{}
		}
	default:
		if v.IsZero() {
			return reflect.Value{}
		}
	}
	return v
}

var known sync.Map // from reflect.Type to []field

// jsonFields returns the fields of a type with a JSON name, sorted by name.
func jsonFields(t reflect.Type) []field {
	if all, ok := known.Load(t); ok {
		return all.([]field)
	}
	all := namedFields(t, nil)
	slices.SortFunc(all, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	known.Store(t, all)
	return all
}

// namedFields returns the fields of a struct with a JSON name, including the fields of embedded structs that
// have no JSON name themselves. The parameter at is the index of the struct in the outermost struct.
func namedFields(t reflect.Type, at []int) (all []field) {
	for i := range t.NumField() {
		f, index := t.Field(i), append(slices.Clip(at), i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			all = append(all, namedFields(f.Type, index)...)
		default:
			all = append(all, field{name: name, index: index, empty: strings.Contains(options, "omitempty")})
		}
	}
	return all
}

// keysOfBoth returns the keys of two maps. Keys with equal strings as values in both are left out, since a pod
// may have a hundred thousand labels.
func keysOfBoth(old, new reflect.Value) (all []field) {
	texts, _ := old.Interface().(map[string]string)
	others, _ := new.Interface().(map[string]string)
	for _, m := range []reflect.Value{old, new} {
		for keys := m.MapRange(); keys.Next(); {
			name := keys.Key().String()
			was, is := texts[name]
			if now, stays := others[name]; !is || !stays || was != now {
				all = append(all, field{name: name, key: keys.Key()})
			}
		}
	}
	slices.SortFunc(all, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b field) bool { return a.name == b.name })
}

// identity returns the name of the field that identifies the elements of two lists: the first of the possible
// fields that all elements have (patchMergeKey of k8s.io/api/core/v1). It is empty if there is none.
func identity(old, new reflect.Value) string {
	if old.Kind() != reflect.Slice || old.Type().Elem().Kind() != reflect.Struct || old.Len() == 0 || new.Len() == 0 {
		return ""
	}
	for _, key := range []string{"mountPath", "containerPort", "name"} {
		if all(old, key) && all(new, key) {
			return key
		}
	}
	return ""
}

func all(list reflect.Value, key string) bool {
	for i := range list.Len() {
		if !id(list.Index(i), key).IsValid() {
			return false
		}
	}
	return true
}

// id returns the named field of an element; the zero value if it has none.
func id(element reflect.Value, key string) reflect.Value {
	for _, f := range jsonFields(element.Type()) {
		if f.name == key {
			return f.of(element)
		}
	}
	return reflect.Value{}
}

// list patches a list. It first removes elements, from the end to the beginning. Then it adds or moves each
// remaining element, from the beginning to the end. With this order the index in each operation is valid when
// that operation is applied.
func (p *patch) list(path, key string, old, new reflect.Value) {
	type element struct {
		id    any
		value reflect.Value
	}
	elements := func(list reflect.Value) (out []element) {
		for i := range list.Len() {
			out = append(out, element{id(list.Index(i), key).Interface(), list.Index(i)})
		}
		return out
	}
	now, wanted := elements(old), elements(new)
	stay := map[any]bool{}
	for _, e := range wanted {
		stay[e.id] = true
	}
	for i := len(now) - 1; i >= 0; i-- {
		if !stay[now[i].id] {
			p.remove(at(path, i))
			now = slices.Delete(now, i, i+1)
		}
	}
	for j, want := range wanted {
		i := slices.IndexFunc(now[min(j, len(now)):], func(e element) bool { return e.id == want.id })
		if i < 0 {
			p.add(at(path, j), want.value.Interface())
			now = slices.Insert(now, j, want)
			continue
		}
		if i > 0 {
			p.move(at(path, i+j), at(path, j))
			e := now[i+j]
			now = slices.Insert(slices.Delete(now, i+j, i+j+1), j, e)
		}
		p.object(at(path, j), now[j].value, want.value)
	}
	for i := len(now) - 1; i >= len(wanted); i-- { // further elements with the name of another one
		p.remove(at(path, i))
	}
}

// moveContainers adds operations that move containers from one list of the spec to the other. It also applies
// them to the spec old.
func (p *patch) moveContainers(old, new *corev1.PodSpec) {
	type list struct {
		name      string
		here, new *[]corev1.Container
	}
	inits := list{"initContainers", &old.InitContainers, &new.InitContainers}
	plain := list{"containers", &old.Containers, &new.Containers}
	for _, way := range [][2]list{{inits, plain}, {plain, inits}} {
		from, to := way[0], way[1]
		for j := len(*from.here) - 1; j >= 0; j-- {
			c := (*from.here)[j]
			named := func(o corev1.Container) bool { return o.Name == c.Name }
			if slices.ContainsFunc(*from.new, named) || !slices.ContainsFunc(*to.new, named) {
				continue
			}
			if len(*to.here) == 0 {
				p.add("/spec/"+to.name, []any{})
			}
			p.move(at("/spec/"+from.name, j), "/spec/"+to.name+"/0")
			*to.here = slices.Insert(slices.Clone(*to.here), 0, c)
			*from.here = slices.Delete(slices.Clone(*from.here), j, j+1)
			if len(*from.here) == 0 && from.name == inits.name { // otherwise the JSON would keep an empty list, which old cannot represent
				p.remove("/spec/" + from.name)
			}
		}
	}
}
