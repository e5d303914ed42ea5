package inject

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// An Operation is one step of a JSON patch (RFC 6902). Its value is of the API's types,
// and part of a pod that was compared: it is to be read.
type Operation struct {
	Op    string `json:"op"`             // add, remove, replace or move
	From  string `json:"from,omitempty"` // of a move
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch is what changes the pod that was given into the injected one. It is empty if
// nothing was changed.
func (r Result) Patch() ([]Operation, error) {
	if r.Pod == r.given {
		return nil, nil
	}
	return Diff(r.given, r.Pod)
}

// Diff is a patch that makes after from before. Elements of lists are told by their names:
// one that stays is not written anew, and one that goes elsewhere is moved. So what a newer
// Kubernetes knows of it, and we do not, is kept.
func Diff(before, after *corev1.Pod) ([]Operation, error) {
	d := &differ{ops: make([]Operation, 0, 32), path: make([]byte, 0, 128)} // about as many as there are
	moved := d.betweenLists(before, after)
	d.fields(podShape(), reflect.ValueOf(moved).Elem(), reflect.ValueOf(after).Elem())
	return d.ops, d.err
}

// A differ walks two values of one type. Nothing is converted, and where they are alike
// nothing is made.
type differ struct {
	ops  []Operation
	path []byte // to where it is
	err  error  // the first value that cannot be written as JSON
}

// down goes to a step below and returns the way back.
func (d *differ) down(step string) (up int) {
	up = len(d.path)
	d.path = append(d.path, '/')
	if strings.ContainsAny(step, "~/") {
		step = escaper.Replace(step)
	}
	d.path = append(d.path, step...)
	return up
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) at(step string) string {
	up := d.down(step)
	path := string(d.path)
	d.path = d.path[:up]
	return path
}

func (d *differ) set(op, step string, v reflect.Value) {
	d.ops = append(d.ops, Operation{Op: op, Path: d.at(step), Value: valueOf(v)})
}

func (d *differ) remove(step string) {
	d.ops = append(d.ops, Operation{Op: "remove", Path: d.at(step)})
}

func (d *differ) replace(v reflect.Value) {
	d.ops = append(d.ops, Operation{Op: "replace", Path: string(d.path), Value: valueOf(v)})
}

// valueOf points at what is large: it is not copied.
func valueOf(v reflect.Value) any {
	if kind := v.Kind(); v.CanAddr() && (kind == reflect.Struct || kind == reflect.Slice) {
		return v.Addr().Interface()
	}
	return v.Interface()
}

// below compares what is at a step further down.
func (d *differ) below(step string, s *shape, old, new reflect.Value) {
	up := d.down(step)
	d.value(s, old, new)
	d.path = d.path[:up]
}

func (d *differ) value(s *shape, old, new reflect.Value) {
	switch {
	case s.text:
		d.text(old, new)
	case s.kind == reflect.Pointer && !old.IsNil() && !new.IsNil():
		if old.UnsafePointer() != new.UnsafePointer() {
			d.value(s.elem, old.Elem(), new.Elem())
		}
	case s.kind == reflect.Struct:
		d.fields(s, old, new)
	case s.kind == reflect.Map && !old.IsNil() && !new.IsNil():
		d.entries(s, old, new)
	case s.kind == reflect.Slice && s.identified(old) && s.identified(new):
		d.elements(s, old, new)
	case s.kind == reflect.String || s.kind == reflect.Bool || old.CanInt():
		if !old.Equal(new) {
			d.replace(new)
		}
	case !reflect.DeepEqual(old.Interface(), new.Interface()):
		d.replace(new)
	}
}

// text compares values that write themselves, such as quantities: what is written alike
// is the same.
func (d *differ) text(old, new reflect.Value) {
	a, b := old.Interface(), new.Interface()
	if reflect.DeepEqual(a, b) {
		return
	}
	was, err := json.Marshal(a)
	is, err2 := json.Marshal(b)
	if err == nil {
		err = err2
	}
	if d.err == nil {
		d.err = err
	}
	if !bytes.Equal(was, is) {
		d.replace(new)
	}
}

func (d *differ) fields(s *shape, old, new reflect.Value) {
	for i := range s.fields {
		f := &s.fields[i]
		was, is := old.Field(f.index), new.Field(f.index)
		switch before, after := f.written(was), f.written(is); {
		case f.name == "":
			d.fields(f.shape, was, is) // embedded
		case before && after:
			d.below(f.name, f.shape, was, is)
		case before:
			d.remove(f.name)
		case after:
			d.set("add", f.name, is)
		}
	}
}

func (d *differ) entries(s *shape, old, new reflect.Value) {
	for _, key := range keysOf(old) {
		if !new.MapIndex(key).IsValid() {
			d.remove(key.String())
		}
	}
	for _, key := range keysOf(new) {
		if was := old.MapIndex(key); was.IsValid() {
			d.below(key.String(), s.elem, was, new.MapIndex(key))
		} else {
			d.set("add", key.String(), new.MapIndex(key))
		}
	}
}

func keysOf(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// elements takes out what goes, from the end, then puts each one into its place, from the
// beginning, so that each index is right at its time.
func (d *differ) elements(s *shape, old, new reflect.Value) {
	now := make([]reflect.Value, 0, old.Len()+new.Len())
	for i := range old.Len() {
		now = append(now, old.Index(i))
	}
	for i := len(now) - 1; i >= 0; i-- {
		if s.indexOf(new, now[i]) < 0 {
			d.remove(strconv.Itoa(i))
			now = slices.Delete(now, i, i+1)
		}
	}
	for j := range new.Len() {
		want, place := new.Index(j), strconv.Itoa(j)
		i := slices.IndexFunc(now[min(j, len(now)):], func(v reflect.Value) bool { return s.elem.same(v, want) })
		switch {
		case i < 0:
			d.set("add", place, want)
			now = slices.Insert(now, j, want)
			continue
		case i > 0:
			d.ops = append(d.ops, Operation{Op: "move", From: d.at(strconv.Itoa(i + j)), Path: d.at(place)})
			v := now[i+j]
			now = slices.Insert(slices.Delete(now, i+j, i+j+1), j, v)
		}
		d.below(place, s.elem, now[j], want)
	}
	for i := len(now) - 1; i >= new.Len(); i-- { // a second one of a name
		d.remove(strconv.Itoa(i))
	}
}

// indexOf is where an element of the same identity is in a list; -1 if there is none.
func (s *shape) indexOf(list, v reflect.Value) int {
	for i := range list.Len() {
		if s.elem.same(list.Index(i), v) {
			return i
		}
	}
	return -1
}

// betweenLists moves the containers that are init containers afterwards, and those that
// are no longer. It returns before with these moved.
func (d *differ) betweenLists(before, after *corev1.Pod) *corev1.Pod {
	out := *before
	lists := []struct {
		path      string
		now, then *[]corev1.Container
	}{
		{"/spec/initContainers", &out.Spec.InitContainers, &after.Spec.InitContainers},
		{"/spec/containers", &out.Spec.Containers, &after.Spec.Containers},
	}
	for i, from := range lists {
		to := lists[1-i]
		for at := len(*from.now) - 1; at >= 0; at-- {
			c := (*from.now)[at]
			if slices.ContainsFunc(*from.then, named(c.Name)) || !slices.ContainsFunc(*to.then, named(c.Name)) {
				continue
			}
			if len(*to.now) == 0 {
				d.ops = append(d.ops, Operation{Op: "add", Path: to.path, Value: []corev1.Container{}})
			}
			d.ops = append(d.ops, Operation{Op: "move", From: from.path + "/" + strconv.Itoa(at), Path: to.path + "/0"})
			*to.now = slices.Concat([]corev1.Container{c}, *to.now)
			*from.now = slices.Concat((*from.now)[:at], (*from.now)[at+1:])
		}
	}
	return &out
}
